"""`ddp_doctor.preflight()`: called by each rank before init_process_group, it says what will stop the job."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Literal

from ddp_doctor.model import Confidence, Finding, Report, Severity

LEAST_WORLD = 2


class PreflightFailed(RuntimeError):
    """The job cannot start: ranks contradict each other, or a fault is proven. `report` says all of it."""

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text)
        self.report = report


def preflight(
    timeout: float = 20.0,
    on_problem: Literal["raise", "warn"] = "raise",
    rank: int | None = None,
    world_size: int | None = None,
    init_method: str | None = None,
) -> Report:
    """Meet the other ranks and examine this machine, in `timeout` seconds, before the process group is made.

    `rank`, `world_size` and `init_method` are those that init_process_group will be given; by default the environment
    tells. Raises PreflightFailed, in every rank that came, where ranks contradict each other or a fault is proven; with
    `on_problem="warn"` that is written to stderr instead. Ranks that are merely late are a warning, and the job goes on.
    Nothing is examined where DDP_DOCTOR=off, or where the process has a default group already.
    """
    if on_problem not in ("raise", "warn"):
        raise ValueError(f'on_problem is "raise" or "warn", not {on_problem!r}')
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout is a number of seconds above 0, not {timeout!r}")
    started = time.monotonic()
    from ddp_doctor.rank import outcome

    if os.environ.get("DDP_DOCTOR", "").strip().lower() in ("off", "0", "false", "no"):
        return outcome.nothing("DDP_DOCTOR=off: nothing was examined")
    from ddp_doctor.rank.own_facts import group_exists, own_facts

    if group_exists():
        return outcome.nothing("this process has a process group already: nothing was examined")
    me = own_facts(os.environ, rank, world_size, init_method)
    report, speaks = outcome.examined(me, started, timeout)
    return _concluded(report, speaks, on_problem)


def _concluded(report: Report, speaks: bool, on_problem: str) -> Report:
    from ddp_doctor.rank import outcome

    proven = [finding for finding in report.findings if _stops_the_job(finding)]
    worth_saying = any(finding.severity is not Severity.NOTE for finding in report.findings)
    if speaks:
        outcome.keep(report)
    if proven and on_problem == "raise":
        first = proven[0]
        short = f"{first.id} {first.name}: {first.summary} (the lowest rank says what to do)"
        raise PreflightFailed(outcome.text_of_findings(report, proven) if speaks else short, report)
    text = outcome.text(report) if speaks and worth_saying else ""
    if text and sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
    return report


def _stops_the_job(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR and finding.confidence is Confidence.CERTAIN
