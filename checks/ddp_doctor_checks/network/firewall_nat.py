"""DDP302: a rank cannot be reached on the ports that the kernel gave it."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import Check, Facts, Finding, Stage
from ddp_doctor_checks import communicator


class FirewallNat(Check):
    id, name = "DDP302", "firewall-nat"
    title = "A rank cannot be reached on the ports the kernel gave it"
    needs = (CommunicatorStop,)
    also_reads = communicator.READS
    acts_at = frozenset({Stage.COMM_BOOTSTRAP, Stage.TRANSPORT})

    def not_applicable(self, facts: Facts) -> str:
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
