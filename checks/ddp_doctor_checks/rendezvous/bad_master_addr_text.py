"""What is wrong with the text of a MASTER_ADDR or MASTER_PORT."""

from __future__ import annotations

import ipaddress
import re
import socket

NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


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
    if text.startswith("["):
        return f"has brackets, which only URLs need: {text!r}"
    if not (_is_ipv6(text) if ":" in text else _is_name(text)):
        return f"is neither a host name nor an IP address: {text!r}"
    return ""


def bare_address(text: str) -> str:
    """The host inside such a text, where it plainly holds one; else empty."""
    inner = text.strip().partition("://")[2] or text.strip()
    found = re.fullmatch(r"\[([^\]]+)\](?::\d+)?/?|([^:/]+)(?::\d+)?/?", inner)
    host = (found[1] or found[2]) if found else ""
    return "" if wrong_address(host) else host


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).version == 6
    except ValueError:
        return False


def _is_name(text: str) -> bool:
    if not NAME.fullmatch(text) or len(text) > 253 or any(not 0 < len(label) < 64 for label in _labels(text)):
        return False
    if not re.fullmatch(r"[0-9.]+", text):
        return True
    try:
        socket.inet_aton(text)
    except OSError:
        return False
    return True


def _labels(text: str) -> list[str]:
    return text.removesuffix(".").split(".")


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
