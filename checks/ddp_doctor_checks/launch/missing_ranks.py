"""DDP101: a rank never comes to the meeting, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import INIT, Check, Facts, Finding
from ddp_doctor_checks import communicator


class MissingRanks(Check):
    id, name = "DDP101", "missing-ranks"
    title = "Ranks that never came"
    needs = (CommunicatorStop,)
    also_reads = communicator.READS
    acts_at = INIT
    residual = True

    def not_applicable(self, facts: Facts) -> str:
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
