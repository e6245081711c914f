"""What NCCL's own diagnostics (2.31 and later, NCCL_RUN_DIAGNOSTICS=1) say of pairs of GPUs, as copies between them.

A trial communicator runs them where the environment under examination asks for them. They are done after initialisation,
so they tell nothing about ranks that do not come that far.
"""

from __future__ import annotations

import re

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.p2p import Mechanism, PairCopy
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts
from ddp_doctor.readers.nccl_log import parse_all

_ACCESS = re.compile(
    r"\[INFO\] p2p: (?P<what>read mismatch|write mismatch|peer-memory import failed)"
    r" .*srcNvmlDev=(?P<first>\d+) .*dstNvmlDev=(?P<second>\d+) .*handle=(?P<handle>\w+)"
    r"(?: expected=(?P<expected>\w+) got=(?P<got>\w+))?(?: reason=(?P<reason>[^;]+))?"
)


def interpret(facts: Facts) -> list[Fact]:
    """A PairCopy for each access that NCCL found wrong; the pairs that passed are not named by it."""
    found: list[Fact] = []
    for rank in facts[CommunicatorRank]:
        for line in (each for text in rank.lines for each in parse_all(text)):
            match = _ACCESS.match(line.message) if line.level == "DIAG" else None
            if match is None:
                continue
            mechanism: Mechanism = "ipc" if "IPC" in match["handle"] else "cumem"
            opened = match["what"].endswith("mismatch")
            found.append(
                PairCopy(
                    subject=rank.subject,
                    source=f"NCCL's diagnostics on {rank.source}",
                    first=int(match["first"]),
                    second=int(match["second"]),
                    mechanism=mechanism,
                    outcome="wrong-data" if opened else "failed",
                    step=match["what"].split()[0] if opened else "open",
                    call="" if opened else "NCCL's import of a peer's memory",
                    error=f"{match['got']} instead of {match['expected']}" if opened else match["reason"] or "",
                )
            )
    return found


INTERPRETER = Interpreter(reads=(CommunicatorRank,), gives=(PairCopy,), interpret=interpret)
