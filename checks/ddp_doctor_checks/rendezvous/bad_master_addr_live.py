"""What a running job shows of DDP204: rank 0 listens here, and MASTER_ADDR leads elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Connection, Resolved, jobs
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `BadMasterAddr.finding`, at most one set per job."""
    # a name without an address leads nowhere at all, which is DDP201
    nowhere = {each.name for each in facts[Resolved] if not each.addresses}
    for view in jobs(facts):
        for rank in view.ranks:
            if rank.doing not in ("refused", "no-answer") or rank.master_address in nowhere:
                continue
            own = [
                each
                for each in facts[Connection]
                if each.subject.process == rank.subject.process
                and each.state == "LISTEN"
                and each.local_port == rank.master_port
            ]
            if not own:
                continue
            others = [each for each in view.ranks if each.doing in ("refused", "no-answer")]
            yield {
                "summary": f"{rank.name} opened the store here on port {rank.master_port}, but MASTER_ADDR "
                f"{rank.master_address} does not lead to this host",
                "because": "the host of the store connects to it like every other rank, by MASTER_ADDR; all of them ask "
                "another host",
                "evidence": [own[0].evidence(), *(each.evidence() for each in others[:4])],
                "fixes": [
                    Fix(
                        title=f"set MASTER_ADDR on every rank to an address that this prints on {rank.name}'s host",
                        commands=("hostname -I",),
                    )
                ],
                "confidence": Confidence.LIKELY,
                "ranks": [each.rank for each in others if each.rank is not None],
            }
