"""`run` as a rank of a launcher, with options that need no help: without the parser's imports, which each rank would pay.

What is not plain here (a settings file, variables of ours, a wrong value) is left to the whole command line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_doctor.cli import MOST_SECONDS
from ddp_doctor.rank.who import NAMES, who_am_i

FLAGS = {"--strict": "strict", "--quiet": "quiet", "-q": "quiet", "--no-redact": "no_redact"}
NUMBERS = {"--wait": 0.1, "--timeout": 0.01, "--probe-timeout": 0.01}
"""Options that take seconds, and the fewest."""
WORDS = {
    "--format": ("text", "json", "markdown", "html", "github", "junit", "sarif"),
    "--color": ("auto", "always", "never"),
    "--fail-on": ("error", "warning", "never"),
    "--active": ("auto", "always", "never"),
}
SHORT = {"-f": "--format"}


def run_as_rank(arguments: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """The exit code of a rank that met the others; None where the whole command line has to be read."""
    if arguments[:1] != ["run"] or not any(name in environ for name in NAMES):
        return None
    if any(name.startswith("DDP_DOCTOR_") for name in environ) or _has_settings():
        return None
    given = plain_options(arguments[1:])
    if given is None:
        return None
    launcher = who_am_i(environ)
    if launcher is None or (launcher.name == "by hand" and "--wait" not in given):
        return None
    from ddp_doctor.cli.merged import examine_rank
    from ddp_doctor.cli.output import Output
    from ddp_doctor.cli.wish import Wish

    out = Output(
        format=given.get("--format", "text"),
        path=None,
        colour=given.get("--color", "auto"),
        verbose=0,
        quiet=given.get("quiet", False),
        fail_on=given.get("--fail-on", "error"),
        strict=given.get("strict", False),
        redact=not given.get("no_redact", False),
        needs_verdict=False,
        started=time.monotonic(),
    )
    wish = Wish(
        selection=None,
        timeout=given.get("--timeout", 60.0),
        probe_timeout=given.get("--probe-timeout", 5.0),
        active=given.get("--active", "auto"),
    )
    return examine_rank(out, wish, launcher, wait=given.get("--wait"), meet_port=None)


def _has_settings() -> bool:
    from ddp_doctor import config

    try:
        return config.find(Path(os.getcwd())) is not None  # noqa: PTH109 - as the command line finds it
    except (OSError, config.ConfigError):
        return True


def plain_options(words: Sequence[str]) -> dict[str, Any] | None:
    """The values of options that are all known here and right; None for any others."""
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word in FLAGS:
            found[FLAGS[word]] = True
            continue
        name, given, value = word.partition("=")
        name = SHORT.get(name, name) if not given else name
        if name not in NUMBERS and name not in WORDS:
            return None
        if not given:
            if not left:
                return None
            value = left.pop(0)
        if name in WORDS:
            if value not in WORDS[name]:
                return None
            found[name] = value
            continue
        try:
            number = float(value)
        except ValueError:
            return None
        if not NUMBERS[name] <= number <= MOST_SECONDS:
            return None
        found[name] = number
    return found
