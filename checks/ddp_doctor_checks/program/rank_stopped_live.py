"""What a running job shows of DDP608: a rank that a signal or a debugger stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Process, jobs, named
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RankStopped.finding`, one set per job."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        stopped = [
            rank
            for rank in (*view.ranks, *view.others)
            if rank.state == "stopped" and rank.role in ("rank", "launcher")
        ]
        if not stopped:
            continue
        first = processes[stopped[0].subject.process]
        traced = first.state == "t"
        who = named(stopped) if all(rank.role == "rank" for rank in stopped) else f"the launcher, PID {first.pid}"
        yield {
            "summary": f"{who} {'is' if len(stopped) == 1 else 'are'} stopped "
            + ("by a debugger" if traced else "by a signal (SIGSTOP, Ctrl-Z, or a batch system that suspends)")
            + f", PID {', '.join(str(rank.subject.pid) for rank in stopped[:4])}",
            "because": "a stopped process answers nobody; where it hosts the store, even the timeouts of the others do not end "
            "their waits",
            "evidence": [
                processes[rank.subject.process].evidence(
                    f"PID {rank.subject.pid} state {processes[rank.subject.process].state}, "
                ""
                f"stopped at {rank.where or 'an unknown place'}")
                for rank in stopped[:4]
            ],
            "fixes": [
                Fix(
                    title="let it go on" if not traced else "let the debugger go on, or detach it",
                    commands=tuple(f"kill -CONT {rank.subject.pid}" for rank in stopped[:8]),
                    needs="its owner",
                )
            ],
            "confidence": Confidence.CERTAIN,
            "ranks": [rank.rank for rank in stopped if rank.rank is not None],
        }  # fmt: skip
