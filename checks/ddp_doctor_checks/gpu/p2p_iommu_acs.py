"""DDP401: P2P is promised by the driver, and the data does not arrive or arrives wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import Check, Facts, Finding, Stage
from ddp_doctor_checks import communicator


class P2pIommuAcs(Check):
    id, name = "DDP401", "p2p-iommu-acs"
    title = "Data between GPUs is lost or damaged on its way (IOMMU, ACS)"
    needs = (CommunicatorStop,)
    also_reads = communicator.READS
    acts_at = frozenset({Stage.TRANSPORT, Stage.FIRST_COLLECTIVE, Stage.DDP_VERIFY})

    def not_applicable(self, facts: Facts) -> str:
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
