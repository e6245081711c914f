"""What a running job shows of DDP116: two processes of one job with the same rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, jobs
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `DuplicateRank.finding`, one set per rank that is there twice."""
    for view in jobs(facts):
        places: dict[tuple[int, str], list[JobRank]] = defaultdict(list)
        for rank in view.ranks:
            if rank.rank is not None and rank.state != "exited":
                places[rank.rank, str(rank.master_port)].append(rank)
        for (number, _), same in places.items():
            processes = {rank.subject.pid for rank in same}
            # a pair in different calls of a job that trains would be two jobs, which have ports of their own
            if len(processes) < 2 or (not view.waiting and all(rank.beyond_init for rank in same)):
                continue
            yield {
                "summary": f"{len(processes)} processes are rank {number} of one job: "
                + " and ".join(f"PID {pid}" for pid in sorted(each for each in processes if each)),
                "because": "they meet at one store and overwrite each other's keys, and the rank that nobody took is waited "
                "for "
                "until the timeout",
                "evidence": [
                    rank.evidence(f"PID {rank.subject.pid}, {rank.command}: {rank.text()}") for rank in same[:4]
                ],
                "fixes": [
                    Fix(
                        title="end the process that does not belong here (another job needs a port of its own)",
                        commands=tuple(
                            f"ps -o pid,lstart,cmd -p {rank.subject.pid}" for rank in same[:3] if rank.subject.pid
                        ),
                        needs="job restart",
                    ),
                    Fix(
                        title="or let a launcher give each process its RANK",
                        commands=(
                            f"torchrun --standalone --nproc-per-node={view.job.world_size or 2} {same[0].file or 'train.py'}",
                        ),
                        needs="job restart",
                    ),
                ],
                # one that never came near torch.distributed may merely have inherited RANK
                "confidence": Confidence.CERTAIN
                if all(rank.call or rank.beyond_init for rank in same)
                else Confidence.LIKELY,
                "ranks": [number],
            }
