"""What a running job shows of DDP606: a rank that has ended while the others wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Connection, Process, jobs, named
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `PeerDied.finding`: a process not yet reaped, or a store whose host is gone."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        dead = [rank for rank in view.ranks if rank.state == "exited"]
        waiting = [rank for rank in view.ranks if rank.state == "waiting" and (rank.call or rank.waits_for)]
        if dead and waiting:
            shown = [processes[rank.subject.process] for rank in dead]
            how = ", ".join(_how(process) for process in shown[:3])
            yield {
                "summary": f"{named(dead)} {'has' if len(dead) == 1 else 'have'} ended ({how}) while {named(waiting)} "
                f"{'waits' if len(waiting) == 1 else 'wait'}",
                "because": "the first failure is there; what the others print later only follows from it",
                "evidence": [
                    *(process.evidence(f"PID {process.pid} {_how(process)}") for process in shown[:4]),
                    *(rank.evidence() for rank in waiting[:3]),
                ],
                "fixes": [_look(shown[0].pid)],
                "confidence": Confidence.LIKELY,
                "ranks": [rank.rank for rank in dead if rank.rank is not None],
            }
            continue
        lost = [
            (rank, each)
            for rank in waiting
            if rank.doing in ("gloo-mesh", "store-key")
            for each in facts[Connection]
            if each.subject.process == rank.subject.process
            and each.state == "CLOSE_WAIT"
            and each.peer_port == rank.master_port
        ]
        if lost and 0 not in view.job.ranks:
            yield {
                "summary": f"the host of the store, rank 0, has ended: it closed its connection to {lost[0][0].name}",
                "because": "the first failure is there; this rank waits for a peer that is gone",
                "evidence": [each.evidence() for _, each in lost[:4]],
                "fixes": [_look(None)],
                "confidence": Confidence.LIKELY,
                "ranks": [0],
            }


def _how(process: Process) -> str:
    code = process.exit_code
    if code is None:
        return "not yet reaped"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _look(pid: int | None) -> Fix:
    return Fix(
        title="look at that rank's own last lines, and at the kernel's for a process it killed",
        commands=("sudo dmesg -T | grep -iE 'killed process|oom|segfault|xid' | tail",),
        needs="root" if pid else "the node of rank 0",
    )
