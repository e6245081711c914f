"""What a running job shows of DDP501: ranks that have different releases of NCCL loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, jobs, minority, named
from ddp_doctor.facts.nccl_live import NcclCall
from ddp_doctor.model import Confidence, Facts, Fix

READS = (JobRank, NcclCall)


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `VersionMismatch.finding`, one set per job whose ranks form a communicator."""
    calls = {call.subject.process: call for call in facts[NcclCall] if call.version}
    for view in jobs(facts):
        loaded = [(rank, calls[rank.subject.process]) for rank in view.ranks if rank.subject.process in calls]
        versions = list(dict.fromkeys(call.version for _, call in loaded))
        if len(versions) < 2 or not any(rank.doing == "communicator" for rank, _ in loaded):
            continue
        odd = [rank for rank, _ in minority(loaded, lambda each: each[1].version) or loaded]
        shown = ", ".join(
            f"{version} on {named(rank for rank, call in loaded if call.version == version)}" for version in versions
        )
        yield {
            "summary": f"the ranks have different NCCL versions: {shown}",
            "because": "the messages of their rendezvous differ between versions; most pairs hang without an error code",
            "evidence": [
                call.evidence(f"PID {rank.subject.pid} {call.library}: {call.text()}") for rank, call in loaded[:6]
            ],
            "fixes": [
                Fix(
                    title="the same wheel in every rank's environment (here the one of rank 0)",
                    commands=(f"python -m pip install --force-reinstall nvidia-nccl-cu12=={loaded[0][1].version}",),
                )
            ],
            "confidence": Confidence.CERTAIN,
            "ranks": [rank.rank for rank in odd if rank.rank is not None],
        }
