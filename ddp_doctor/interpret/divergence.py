"""Ranks that do not do the same: which of the ways to part this is, and which ranks went another way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ddp_doctor.facts.job import CallSite, Divergence, JobRank, minority
from ddp_doctor.interpret.waits import TOGETHER, all_receive, operation
from ddp_doctor.model import Subject

RANK_CONDITION = re.compile(
    r"\brank\b|get_rank\(|\w*_rank\b|\bis_(main|master|rank|world)\w*|RANK\b|\bprocess_index\b|main_process",
    re.IGNORECASE,
)
CONSTRUCTING = ("verify-parameters", "sync-module-states")
STEPPING = ("sync-buffers", "backward")


def divergence(ranks: Sequence[JobRank], sites: Sequence[CallSite]) -> Divergence | None:
    """How the ranks of a job that has passed init part from each other; None where they do not, or one is just late."""
    together = [rank for rank in ranks if rank.doing in TOGETHER and rank.state != "running"]
    apart = [rank for rank in ranks if rank not in together]
    if not together or any(rank.state in ("stopped", "exited") or not rank.beyond_init for rank in ranks):
        return None
    by_place = {f"{site.file}:{site.line}": site for site in sites}
    conditional = {rank.subject.process: site for rank in together if (site := _condition(rank, by_place)) is not None}
    calls = {_call(rank) for rank in together}
    kinds = {rank.doing for rank in together}
    if "new-group" in kinds:
        return _groups(together)
    if len(calls) == 1 and not apart:
        return _found("collective", together, together, []) if all_receive(together) else None
    under = [rank for rank in together if rank.subject.process in conditional]
    # a condition that all ranks stand under is none that parts them
    parted = under if 0 < len(under) < len(ranks) else []
    sites_of_parted = [conditional[rank.subject.process] for rank in parted]
    if len(calls) == 1:
        # one rank that works first while the others wait in a barrier is how datasets are prepared
        if any(rank.state == "running" for rank in apart) or any(site.paired for site in sites_of_parted):
            return None
        return _found("rank-conditional", together, parted, sites_of_parted) if parted else None
    operations = {operation(rank) for rank in together}
    if operations <= {*STEPPING}:
        return _found("model", together, together, [])
    constructing = [rank for rank in together if rank.operation in CONSTRUCTING]
    if constructing:
        return _found(
            "rank-conditional", together, [rank for rank in together if rank not in constructing], sites_of_parted
        )
    stepping = [rank for rank in together if rank.operation in STEPPING]
    others = [rank for rank in together if rank not in stepping]
    if stepping and any(_left_loop(rank, stepping, by_place) for rank in others):
        return _found("uneven", together, others, [])
    if parted:
        return _found("rank-conditional", together, parted, sites_of_parted)
    if stepping:
        return _found("rank-conditional", together, minority(together, _call) or stepping, [])
    return _found("collective", together, minority(together, _call) or together, [])


def _groups(together: Sequence[JobRank]) -> Divergence | None:
    making = [rank for rank in together if rank.doing == "new-group"]
    others = [rank for rank in together if rank.doing != "new-group"]
    made = Counter((rank.group, rank.group_ranks) for rank in making)
    if not others and len(made) < 2:
        return None
    odd = others
    if len(made) > 1:
        most = made.most_common(1)[0]
        odd = [*others, *(rank for rank in making if (rank.group, rank.group_ranks) != most[0])]
        odd = odd if made.most_common(2)[1][1] < most[1] or others else making
    return _found("group", together, odd, [])


def _call(rank: JobRank) -> tuple[str, str]:
    return rank.doing, operation(rank)


def _condition(rank: JobRank, by_place: Mapping[str, CallSite]) -> CallSite | None:
    """Where one of its frames stands under a condition about the rank."""
    for place in rank.places:
        site = by_place.get(place)
        about = [each for each in site.conditions if RANK_CONDITION.search(each)] if site is not None else []
        if site is not None and about:
            return msgspec.structs.replace(site, conditions=tuple(about))
    return None


def _left_loop(rank: JobRank, stepping: Sequence[JobRank], by_place: Mapping[str, CallSite]) -> bool:
    """Whether it stands behind the loop in which the others still take steps."""
    behind = {
        (site.file, line)
        for place in rank.places
        if (site := by_place.get(place)) is not None
        for line in site.after_loops
    }
    inside = {
        (site.file, line)
        for other in stepping
        for place in other.places
        if (site := by_place.get(place)) is not None
        for line in site.loop_lines
    }
    return bool(behind & inside)


def _found(fault: str, together: Sequence[JobRank], odd: Sequence[JobRank], sites: Sequence[CallSite]) -> Divergence:
    return Divergence(
        subject=Subject(host=together[0].subject.host),
        source=together[0].source,
        job=together[0].job,
        fault=fault,  # type: ignore[arg-type]
        odd=tuple(sorted(rank.rank for rank in odd if rank.rank is not None)),
        sites=tuple(dict.fromkeys(sites)),
    )
