"""What a meeting before init shows of DDP501: ranks with different releases of torch or NCCL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Confidence, Facts, Fix, Severity


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `VersionMismatch.finding`, at most one set for torch and one for NCCL."""
    for what in ("torch", "NCCL"):
        groups: dict[str, list[Attendee]] = defaultdict(list)
        for each in facts[Attendee]:
            version = each.torch if what == "torch" else each.nccl
            if each.rank is not None and version:
                groups[version].append(each)
        if len(groups) < 2:
            continue
        order = sorted(groups.items(), key=lambda item: -len(item[1]))
        tied = len(order[0][1]) == len(order[1][1])
        odd = [each for version, group in order if tied or version != order[0][0] for each in group]
        shown = "; ".join(
            f"{numbers(each.rank for each in group if each.rank is not None)}: {version}" for version, group in order
        )
        yield {
            "summary": f"the ranks have different releases of {what}: {shown}",
            "because": "releases change what ranks say to each other while they start: they then wait for messages that the "
            "other release never sends, or end with a text about a mismatch",
            "evidence": [group[0].evidence(f"{what} {version}: {group[0].text()}") for version, group in order[:6]],
            "fixes": [
                Fix(
                    title="install one release everywhere; see what each node has",
                    commands=("python -m pip list 2>/dev/null | grep -iE '^(torch|nvidia-nccl)'   # on every node",),
                    needs="a change of the environment",
                )
            ],
            "severity": Severity.WARNING,
            "confidence": Confidence.LIKELY,
            "ranks": [each.rank for each in odd if each.rank is not None],
        }
