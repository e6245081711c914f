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

AFTERWARDS = "what is left of a rank that ended is what it printed; `ddp-doctor triage LOG...` reads that"


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
        print(f"ddp-doctor: there is no process {pid}: {AFTERWARDS}", file=sys.stderr)
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
        ended = [pid for pid in alive if _has_ended(host, pid)]
        others = [pid for pid in alive if pid not in ended]
        for pid in ended:
            print(f"ddp-doctor: PID {pid} has ended: {AFTERWARDS}", file=sys.stderr)
        if others or every:
            named = (
                f"PID {', '.join(map(str, others))} is no rank process, nor is one below it"
                if others
                else "no rank process here"
            )
            print(f"ddp-doctor: {named}; `pgrep -af train.py` lists the processes of a script", file=sys.stderr)
    return report


def _has_ended(host: Host, pid: int) -> bool:
    """Whether the process is gone, or a zombie that nobody has reaped yet."""
    stat = host.kernel(f"/proc/{pid}/stat")
    return stat is None or stat.rpartition(")")[2].split()[0] in ("Z", "X")
