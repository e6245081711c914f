"""What a running job shows of DDP601."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.program.divergence_live import all_seen, calls, common, parted


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RankConditional.finding`, one set per job."""
    for view, found, odd in parted(facts, "rank-conditional"):
        site = found.sites[0] if found.sites else None
        under = f", under `{site.conditions[0]}` ({site.source or site.file})" if site else ""
        yield {
            "summary": f"the ranks are in different calls: {calls(view)}{under}",
            "because": "a collective returns when every rank has called it; one that some ranks leave out is waited for there, "
            "and the others hang at their next one",
            "fixes": [
                Fix(
                    title="move the call to where every rank passes, and keep under the condition only one rank's own work",
                    commands=(site.conditions[0], "    ...  # no collective in here", site.code)
                    if site
                    else ("if rank == 0:", "    ...  # no collective in here", "dist.barrier()"),
                    needs="code change, job restart",
                )
            ],
            # the condition was read in the script, and only the ranks under it stand there
            **common(view, found, odd, sure=site is not None and bool(odd) and all_seen(view)),
        }
