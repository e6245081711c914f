"""What a running job shows of DDP410: a rank of an earlier run that lost its parent and has taken a rank of this one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, jobs
from ddp_doctor.model import Confidence, Facts, Fix

READS = (JobRank, Process)
INIT = 1
OLDER_SECONDS = 5.0


def left_over(facts: Facts) -> Iterator[tuple[JobRank, list[JobRank]]]:
    """Each rank that is there twice, once as a process without a parent that is older than all others: it and its heirs."""
    processes = {each.subject.process: each for each in facts[Process]}
    for view in jobs(facts):
        same: dict[int, list[JobRank]] = defaultdict(list)
        for rank in view.ranks:
            if rank.rank is not None and rank.state != "exited" and rank.subject.process in processes:
                same[rank.rank].append(rank)
        for ranks in same.values():
            old = [rank for rank in ranks if processes[rank.subject.process].parent == INIT]
            heirs = [rank for rank in ranks if rank not in old]
            if len(old) != 1 or not heirs:
                continue
            age = processes[old[0].subject.process].age_s or 0.0
            rest = [processes[rank.subject.process] for rank in view.ranks if rank is not old[0]]
            # a job whose launcher died has lost the parents of all its ranks
            if all(each.parent != INIT and (each.age_s or 0.0) + OLDER_SECONDS < age for each in rest):
                yield old[0], heirs


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `LeftoverProcess.finding`."""
    for old, heirs in left_over(facts):
        pid = old.subject.pid
        yield {
            "summary": f"PID {pid}, rank {old.rank} of an earlier run, is still there and has met this job's ranks",
            "because": f"it lost its parent, so nothing ended it; it asks the same MASTER_PORT and takes the place of rank "
            f"{old.rank}, PID {heirs[0].subject.pid}, which then waits for ever",
            "evidence": [
                old.evidence(f"PID {pid}, parent 1, {old.command}: {old.text()}"),
                *(each.evidence(f"PID {each.subject.pid}: {each.text()}") for each in heirs[:3]),
            ],
            "fixes": [
                Fix(
                    title="end it, then start the job again",
                    commands=(f"ps -o pid,ppid,lstart,cmd -p {pid}", f"kill {pid}"),
                    needs="its owner, job restart",
                )
            ],
            "confidence": Confidence.LIKELY,
            "ranks": [] if old.rank is None else [old.rank],
        }
