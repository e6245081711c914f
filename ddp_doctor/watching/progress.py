"""Whether a rank that uses no processor gets on all the same: it moves data, or what it has started works for it."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ddp_doctor.watching.tree import below

BUSY = 0.1
"""The share of a processor that those below a rank use at least where they work for it; services of it use less."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Done(NamedTuple):
    """What a rank has done by a moment: bytes it has read and written, and processor seconds of each below it."""

    moment: float
    moved: int
    used: Mapping[int, float]


def done(pids: Iterable[int], others: Collection[int] = ()) -> dict[int, Done]:
    """What these ranks have done by now; what may not be seen counts as nothing.

    `others` are the ranks of the job: one below another does not work for that one.
    """
    found = {}
    for pid in pids:
        used = {child: _used(child) for child in below(pid, others)}
        found[pid] = Done(time.monotonic(), _moved(pid), used)
    return found


def got_on(before: Done, now: Done) -> bool:
    """Whether a rank, or what it has started, did something in between."""
    used = sum(seconds - before.used.get(child, 0.0) for child, seconds in now.used.items())
    return now.moved > before.moved or used > BUSY * (now.moment - before.moment)


def _moved(pid: int) -> int:
    """Of files, pipes and terminals, as the kernel counts them."""
    try:
        counted = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines())
        return int(counted["rchar"]) + int(counted["wchar"])
    except (OSError, ValueError, KeyError):
        return 0


def _used(pid: int) -> float:
    """Processor seconds, of its children that have ended too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_PER_SECOND
    except (OSError, ValueError):
        return 0.0
