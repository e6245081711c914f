"""What a running job shows of DDP111: ranks of one job that look for the store in different places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, jobs, minority, named, started_together
from ddp_doctor.model import Confidence, Facts, Fix

LOOPBACK = ("127.", "localhost", "::1")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `MasterInconsistent.finding`, one set per job."""
    networks = {process.subject.process: process.network for process in facts[Process]}
    for view in jobs(facts):
        told = [rank for rank in view.ranks if rank.master_port is not None and rank.state != "exited"]
        if not any(rank.waits_for for rank in told):
            continue
        ports = {rank.master_port for rank in told}
        hosts = {networks.get(rank.subject.process) for rank in told}
        apart = len(hosts) > 1 and all(rank.master_address.startswith(LOOPBACK) for rank in told)
        if len(ports) < 2 and not apart:
            continue
        yield _finding(told, apart)


def _finding(told: list[JobRank], apart: bool) -> dict[str, Any]:
    odd = told if apart else minority(told, lambda rank: rank.master_port) or told
    where = "; ".join(f"{rank.name} {rank.master_address}:{rank.master_port}" for rank in told[:4])
    zero = next((rank for rank in told if rank.rank == 0), told[0])
    others = [rank for rank in odd if rank is not zero] or odd
    # two jobs that each have but one rank here would have stores on two hosts
    sure = apart or (len({rank.master_address for rank in told}) == 1 and started_together(told))
    return {
        "summary": f"MASTER_ADDR is loopback for ranks of {len(told)} hosts: each looks for the store on itself"
        if apart
        else f"the ranks look for the store in different places: {where}",
        "because": "rank 0 opens one store; a rank that asks elsewhere is refused there until its timeout, and rank 0 "
        "waits for it",
        "evidence": [rank.evidence(f"{rank.master_address}:{rank.master_port}, {rank.text()}") for rank in told[:6]],
        "fixes": [
            Fix(
                title="give every rank the address and port of rank 0's node"
                if apart
                else f"give {named(others)} the port of rank 0",
                commands=(
                    "export MASTER_ADDR=$(hostname -I | cut -d' ' -f1)   # on rank 0's node; the same value everywhere"
                    if apart
                    else f'init_method="tcp://{zero.master_address}:{zero.master_port}"   # in {named(others)}'
                    if all(rank.init_method.startswith("tcp://") for rank in others)
                    else f"export MASTER_ADDR={zero.master_address} MASTER_PORT={zero.master_port}",
                ),
            )
        ],
        "confidence": Confidence.CERTAIN if sure else Confidence.LIKELY,
        "ranks": [rank.rank for rank in odd if rank.rank is not None],
    }
