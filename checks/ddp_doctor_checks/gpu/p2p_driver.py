"""DDP402: the driver call that opens a peer's memory does not return."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import Check, Facts, Finding, Stage
from ddp_doctor_checks import communicator


class P2pDriver(Check):
    id, name = "DDP402", "p2p-driver"
    title = "The driver does not join the memory of two GPUs"
    needs = (CommunicatorStop,)
    also_reads = communicator.READS
    acts_at = frozenset({Stage.TRANSPORT, Stage.FIRST_COLLECTIVE})

    def not_applicable(self, facts: Facts) -> str:
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
