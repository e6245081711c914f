"""What a running job shows of DDP407 and DDP402: a rank inside NCCL whose call of the driver does not return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, jobs, named
from ddp_doctor.facts.nccl_live import NcclCall
from ddp_doctor.interpret.nccl_call import phase_of_call
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks.communicator import LOOK_AT_GPU, WITHOUT_P2P

READS = (JobRank, NcclCall)
WHERE = {
    "interface": "before NCCL's rendezvous",
    "network": "while NCCL starts NVML and its network",
    "driver": "while NCCL starts",
    "exchange": "while NCCL reads the GPU's identity",
    "topology": "while NCCL reads what connects the GPUs",
    "connect": "while NCCL joins the connections",
    "first-connect": "while NCCL joins the connections",
    "connected": "after NCCL joined the connections",
    "first-connected": "while it launches its collective",
}
JOINING = ("p2p", "ncclP2p", "ncclProxyClientGetFd")
"""Functions that open the memory of another GPU."""


def stuck_ranks(facts: Facts, *, joining: bool) -> Iterator[dict[str, Any]]:
    """Arguments for the finding of DDP402 (a rank that joins a peer's memory) or of DDP407 (any other)."""
    calls = {call.subject.process: call for call in facts[NcclCall]}
    for view in jobs(facts):
        for rank in view.ranks:
            call = calls.get(rank.subject.process)
            if rank.doing != "driver" or call is None:
                continue
            phase = phase_of_call(call.frames) or ""
            joins = phase.endswith("connect") and any(name.startswith(JOINING) for name in call.frames)
            if joins is joining:
                yield _finding(rank, call, phase, [other for other in view.waiting if _awaits(other, rank)], joins)


def _awaits(other: JobRank, rank: JobRank) -> bool:
    return rank.rank in {wait.rank for wait in other.waits_for}


def _finding(rank: JobRank, call: NcclCall, phase: str, waiting: list[JobRank], joins: bool) -> dict[str, Any]:
    where = "while it joins the memory of another GPU (P2P)" if joins else WHERE.get(phase, "inside NCCL")
    waits = ""
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        waits = f"; {named(waiting)} {verb} for it, and NCCL has no time-out there"
    fix = Fix(title=LOOK_AT_GPU.title, commands=LOOK_AT_GPU.commands, needs=LOOK_AT_GPU.needs)
    return {
        "summary": f"{rank.name} stands still {where}, in {call.frames[0]}",
        "because": f"for a second or more its thread did not leave {_call(call.does)}, which is no wait for another rank: most "
        "often a call of the driver on a sick GPU that does not return" + waits,
        "evidence": [
            call.evidence(f"PID {rank.subject.pid}: {call.text()}"),
            *(each.evidence() for each in waiting[:4]),
        ],
        "fixes": [WITHOUT_P2P, fix] if joins else [fix],
        "confidence": Confidence.LIKELY,
        "ranks": [] if rank.rank is None else [rank.rank],
    }


def _call(does: str) -> str:
    return f"the system call {does}" if not does.isdigit() else f"system call number {does}"
