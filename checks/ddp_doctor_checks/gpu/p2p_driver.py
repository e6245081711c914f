"""DDP402: the driver call that opens a peer's memory does not return."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks import communicator, pair_evidence
from ddp_doctor_checks.gpu import gpu_fault_live as live


class P2pDriver(Check):
    id, name = "DDP402", "p2p-driver"
    title = "The driver does not join the memory of two GPUs"
    needs = (CommunicatorStop,)
    also_reads = (*communicator.READS, *live.READS, *pair_evidence.READS)
    acts_at = frozenset({Stage.TRANSPORT, Stage.FIRST_COLLECTIVE})
    told = Told(
        because="the driver or the card says that peer-to-peer works, and the copies do not arrive",
        fixes=(
            Fix(
                title="prove it: the job must pass without peer-to-peer (a test that other causes pass too)",
                commands=("export NCCL_P2P_DISABLE=1",),
                needs="job restart",
            ),
            Fix(
                title="then update the driver, and take the setting out again",
                commands=("nvidia-smi --query-gpu=name,driver_version --format=csv",),
                needs="root, reboot",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if pair_evidence.blamed(facts) or any(live.stuck_ranks(facts, joining=True)):
            return ""
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        if pair_evidence.blamed(facts):
            yield from pair_evidence.findings(self, facts)
        else:
            yield from communicator.findings(self, facts)
        for each in live.stuck_ranks(facts, joining=True):
            yield self.finding(**each)
