"""What a running job shows of DDP117: ranks of one job that count it differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import jobs, minority, named, started_together
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `WorldSizeMismatch.finding`, one set per job."""
    for view in jobs(facts):
        told = [rank for rank in view.ranks if rank.world_size is not None and rank.state != "exited"]
        sizes = Counter(rank.world_size for rank in told)
        if len(sizes) < 2 or not view.waiting:
            continue
        odd = minority(told, lambda rank: rank.world_size) or told
        shown = "; ".join(
            f"{named([rank for rank in told if rank.world_size == size])} {'says' if count == 1 else 'say'} {size}"
            for size, count in sorted(sizes.items(), key=lambda item: -item[1])
        )
        # ranks that ask for different stores may be of two jobs
        sure = len({rank.master_port for rank in told}) == 1 or started_together(told)
        yield {
            "summary": f"the ranks of one job disagree about the world size: {shown}",
            "because": "each waits for as many ranks as it counts; those that count more wait for ranks that nobody starts",
            "evidence": [rank.evidence(f"world size {rank.world_size}, {rank.text()}") for rank in told[:6]],
            "fixes": [
                Fix(
                    title="give all ranks one WORLD_SIZE; a launcher does",
                    commands=(f"torchrun --standalone --nproc-per-node={len(told)} {told[0].file or 'train.py'}",),
                )
            ],
            "confidence": Confidence.CERTAIN if sure else Confidence.LIKELY,
            "ranks": [rank.rank for rank in odd if rank.rank is not None],
        }
