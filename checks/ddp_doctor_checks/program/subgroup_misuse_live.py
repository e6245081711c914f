"""What a running job shows of DDP605."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.program.divergence_live import all_seen, calls, common, parted


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `SubgroupMisuse.finding`, one set per job."""
    for view, found, odd in parted(facts, "group"):
        yield {
            "summary": f"new_group is not called alike by all ranks: {calls(view)}",
            "because": "new_group is a collective of the default group, and groups are numbered in the order of the calls: "
            "a rank "
            "that leaves one out or takes another order waits for keys that nobody writes",
            "fixes": [
                Fix(
                    title="let every rank create every group in one order, and keep its own",
                    commands=(
                        "for members in all_members:  # the same list of lists on every rank",
                        "    group = dist.new_group(members)",
                        "    if rank in members:",
                        "        own_group = group",
                    ),
                    needs="code change, job restart",
                )
            ],
            # different groups at once; a rank that stands in another call may merely have left that one out
            **common(view, found, odd, sure=all_seen(view) and all(rank.doing == "new-group" for rank in view.ranks)),
        }
