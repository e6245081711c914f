"""Giving way to a job that is looked at: the examination takes the CPU time that nobody else wants, where there is some."""

from __future__ import annotations

import os
import time

SECONDS_OF_SAMPLE = 0.05
LEAST_IDLE_CPUS = 0.5
"""With less than this the examination would miss its deadlines in the idle class, and so it stays in the usual one."""


def give_way() -> bool:
    """Let whatever else wants a CPU come before this process and all it starts; says whether it does from now on.

    A process in the idle class gets next to nothing of a CPU that is full, and only root can take it out again, so it is
    entered only where CPUs were idle a moment ago. Where none was, computing at once or later costs a job the same.
    """
    before, began = _idle_seconds(), time.monotonic()
    time.sleep(SECONDS_OF_SAMPLE)
    after, ended = _idle_seconds(), time.monotonic()
    if before is None or after is None or after - before < LEAST_IDLE_CPUS * (ended - began):
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError):
        return False
    return True


def _idle_seconds() -> float | None:
    """What the CPUs that this process may use have idled since boot, summed up; None where the kernel does not tell."""
    try:
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs a start more than this file
            rows = [line.split() for line in file if line.startswith("cpu")]
        return sum(int(row[4]) + int(row[5]) for row in rows if row[0] in usable) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
