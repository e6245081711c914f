"""What is wrong with the text of a MASTER_ADDR or MASTER_PORT."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")


def wrong_address(text: str) -> str:
    """What is wrong with a MASTER_ADDR, in words that follow its name; empty if it can be a name or an address."""
    if not text.strip():
        return "is empty" if not text else "holds only blanks"
    if text != text.strip():
        return f"has a blank around it: {text!r}"
    if "://" in text:
        return f"is a URL, not a host: {text!r}"
    if re.fullmatch(r"[^:]+:\d+", text):
        return f"has a port in it, which belongs in MASTER_PORT: {text!r}"
    if not NAME.fullmatch(text):
        return f"is neither a host name nor an IP address: {text!r}"
    return ""


def wrong_port(text: str) -> str:
    """What is wrong with a MASTER_PORT, in words that follow its name; empty if a rank can connect to it."""
    if not text.strip():
        return "is empty"
    try:
        number = int(text)
    except ValueError:
        return f"is no number: {text!r}"
    if number == 0:
        return "is 0: rank 0 would open a port that the kernel chooses and no other rank knows"
    return "" if 0 < number < 65536 else f"is outside 1 to 65535: {number}"
