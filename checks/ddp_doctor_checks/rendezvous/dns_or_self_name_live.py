"""What a running job shows of DDP201: ranks that look for a MASTER_ADDR without an address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Process, Resolved, jobs
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `DnsOrSelfName.finding`, one set per job and name."""
    networks = {process.subject.process: process.network for process in facts[Process]}
    for view in jobs(facts):
        for asked in facts[Resolved]:
            stuck = [
                rank
                for rank in view.ranks
                if rank.doing == "refused"
                and rank.master_address == asked.name
                and networks.get(rank.subject.process) == asked.network
            ]
            if not stuck or asked.addresses:
                continue
            yield {
                "summary": f"MASTER_ADDR {asked.name!r} does not resolve: {asked.error}",
                "because": "a rank asks for the name again until its timeout (up to twice the 10 or 30 min) before it fails",
                "evidence": [asked.evidence(), *(rank.evidence() for rank in stuck[:4])],
                "fixes": [
                    Fix(
                        title="use the address of rank 0's node, the same on every rank; if all ranks are on this node",
                        commands=("export MASTER_ADDR=127.0.0.1",),
                    )
                ],
                "confidence": Confidence.CERTAIN if "not known" in asked.error else Confidence.LIKELY,
                "ranks": [rank.rank for rank in stuck if rank.rank is not None],
            }
