"""DDP305: NCCL is told to use a network that it does not find on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import INIT, Check, Facts, Finding, Fix, Told
from ddp_doctor_checks import communicator


class RdmaAccess(Check):
    id, name = "DDP305", "rdma-access"
    title = "NCCL is told to use an RDMA network that it cannot reach here"
    needs = (CommunicatorStop,)
    also_reads = communicator.READS
    acts_at = INIT
    told = Told(
        because="RDMA needs its devices in the container and leave to lock memory; without them NCCL's network cannot "
        "start",
        fixes=(
            Fix(title="see both inside the job", commands=("ulimit -l; ls -l /dev/infiniband",), needs="nothing"),
            Fix(
                title="give them to the container",
                commands=("docker run --ulimit memlock=-1 --device=/dev/infiniband --cap-add=IPC_LOCK IMAGE",),
                needs="container restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
