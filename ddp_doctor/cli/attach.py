"""`attach`: what the processes of a running job show."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.examine import Selection
from ddp_doctor.host import Host
from ddp_doctor.model import Report
from ddp_doctor.running_job import examine_running


def examine_job(
    out: Output,
    pids: Sequence[int],
    selection: Selection | None,
    timeout: float,
    probe_timeout: float,
    *,
    every: bool,
    stacks: bool,
    native: bool,
) -> Report:
    """Every rank of the jobs these processes belong to, or of every job on this node."""
    host = interrupts_end(Host(timeout, probe_seconds=probe_timeout))
    alive = [pid for pid in dict.fromkeys(pids) if host.kernel(f"/proc/{pid}/stat") is not None]
    for pid in sorted(set(pids) - set(alive)):
        print(f"ddp-doctor: there is no process {pid}", file=sys.stderr)
    report = examine_running(
        "attach",
        host,
        alive,
        every=every,
        stacks=stacks,
        native=native,
        selection=selection,
        started=out.started,
        progress=out.waiting,
        keep=out.keep,
    ).report
    if report.verdict.status == "nothing" and (alive or every):
        named = (
            f"PID {', '.join(map(str, alive))} is no rank process, nor is one below it"
            if alive
            else "no rank process here"
        )
        print(f"ddp-doctor: {named}; `pgrep -af train.py` lists the processes of a script", file=sys.stderr)
    return report
