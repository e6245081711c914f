"""Values for tests of checks that a trial communicator feeds."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.interpret.nccl_phase import interpret
from ddp_doctor.model import Absent, Fact, Facts, Subject


def rank(number: int, *messages: str, **changes: Any) -> CommunicatorRank:
    """Rank `number` of 2 on NCCL 2.27.5 that waits in ncclCommInitRank, having printed these messages (`WARN ...`)."""
    levels = [message.split(" ", 1) if message.startswith("WARN ") else ("INFO", message) for message in messages]
    lines = tuple(
        f"vm:{100 + number}:{100 + number} [{number}] "
        + (f"bootstrap.cc:1 NCCL WARN {text}" if level == "WARN" else f"NCCL INFO {text}")
        for level, text in levels
    )
    values: dict[str, Any] = {
        "subject": Subject(host="vm", pid=100 + number, rank=number),
        "source": f"rank {number} of a trial communicator",
        "rank": number,
        "world_size": 2,
        "device": number,
        "version": "2.27.5",
        "step": "communicator",
        "network": "net:[1]",
        "shm_device": 27,
        "uuid": f"{number:032x}",
        "pci": f"0000:0{number + 1}:00.0",
        "lines": lines,
    }
    return CommunicatorRank(**(values | changes))


def passed(number: int, **changes: Any) -> CommunicatorRank:
    """The same rank when all went well."""
    values = {"outcome": "passed", "value_ok": True, "step": "all-reduce on the GPU"}
    return rank(number, STARTED, "ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init COMPLETE", **(values | changes))


def meaning(*ranks: CommunicatorRank) -> tuple[Fact, ...]:
    """These facts and what the interpreter makes of them."""
    return (*ranks, *interpret(Facts(ranks)))


STARTED = "ncclCommInitRankConfig comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init START"
REFUSED = Absent(kind="CommunicatorStop", status="denied", reason="GPU 0 used by PID 7")
