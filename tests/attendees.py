"""Ranks before init, as values."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.model import Subject


def attendee(rank: int | None, size: int | None = 2, **changes: Any) -> Attendee:
    """A rank on node-a that goes to 127.0.0.1:29500; `pid` and `thread` tell it from others."""
    pid = changes.pop("pid", 4100 + (rank or 0))
    subject = Subject(
        host=changes.pop("host", "node-a"), pid=pid, start_time=77, thread=changes.pop("thread", pid), rank=rank
    )
    values: dict[str, Any] = {
        "subject": subject, "source": f"pid {pid}", "rank": rank, "world_size": size, "address": "127.0.0.1",
        "port": "29500", "machine": f"boot of {subject.host}", "where": "train.py:12 training_func", "script": "train.py",
    }  # fmt: skip
    return Attendee(**(values | changes))


def attendance(size: int = 2, *present: int, **changes: Any) -> Attendance:
    """Who came of a world of that size; the others are missing."""
    missing = tuple(rank for rank in range(size) if rank not in present)
    values: dict[str, Any] = {"world_size": size, "present": present, "missing": missing, "waited_s": 20.0}
    return Attendance(**(values | changes))
