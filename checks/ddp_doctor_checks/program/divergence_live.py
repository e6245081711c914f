"""What a running job shows where its ranks stand in different calls: shared by the checks that tell the ways apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Divergence, JobRank, JobView, jobs, named
from ddp_doctor.model import Confidence, Evidence, Facts


def parted(facts: Facts, fault: str) -> Iterator[tuple[JobView, Divergence, list[JobRank]]]:
    """Each job whose ranks part in this way, and the ranks that went another way."""
    for view in jobs(facts):
        for found in facts[Divergence]:
            if found.job == view.job.number and found.fault == fault:
                yield view, found, [rank for rank in view.ranks if rank.rank in found.odd]


def calls(view: JobView) -> str:
    """Who stands in which call: `rank 0 barrier (train.py:12), rank 1 all_reduce (train.py:14)`."""
    by_call: dict[str, list[JobRank]] = {}
    for rank in view.ranks:
        what = rank.call or "no collective"
        place = rank.where.split(" ")[0]
        by_call.setdefault(f"{what} ({place})" if place else what, []).append(rank)
    return ", ".join(f"{named(ranks)} in {what}" for what, ranks in by_call.items())


def quoted(view: JobView, found: Divergence) -> list[Evidence]:
    """The lines that part the ranks, then where each rank stands."""
    return [
        *(site.evidence(f"{' / '.join(site.conditions)}  ->  {site.code}") for site in found.sites[:3]),
        *(rank.evidence() for rank in view.ranks[:8]),
    ]


def all_seen(view: JobView) -> bool:
    """Whether every rank of the job is here, and where each of them stands is known."""
    return len(view.ranks) == view.job.world_size and all(rank.has_stack and rank.call for rank in view.ranks)


def common(view: JobView, found: Divergence, odd: list[JobRank], sure: bool = False) -> dict[str, Any]:
    """What all these findings have alike."""
    return {
        "evidence": quoted(view, found),
        "confidence": Confidence.CERTAIN if sure else Confidence.LIKELY,
        "ranks": [rank.rank for rank in odd if rank.rank is not None],
    }
