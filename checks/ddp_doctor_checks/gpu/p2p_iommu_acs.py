"""DDP401: P2P is promised by the driver, and the data does not arrive or arrives wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks import communicator


class P2pIommuAcs(Check):
    id, name = "DDP401", "p2p-iommu-acs"
    title = "Data between GPUs is lost or damaged on its way (IOMMU, ACS)"
    needs = (CommunicatorStop,)
    also_reads = communicator.READS
    acts_at = frozenset({Stage.TRANSPORT, Stage.FIRST_COLLECTIVE, Stage.DDP_VERIFY})
    told = Told(
        because="with ACS or an IOMMU that translates, traffic from GPU to GPU is redirected or refused, and NCCL's "
        "kernels wait for data that never comes",
        fixes=(
            Fix(
                title="see whether it is so",
                commands=(
                    "sudo lspci -vvv | grep -E 'ACSCtl:.*SrcValid\\+'",
                    "cat /proc/cmdline; sudo dmesg | grep -iE 'IO_PAGE_FAULT|DMAR.*fault'",
                ),
                needs="root",
            ),
            Fix(
                title="switch ACS off in the BIOS, and let the IOMMU pass through",
                commands=(
                    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && sudo update-grub   # then reboot",
                ),
                needs="root, reboot",
            ),
            Fix(
                title="until then avoid peer-to-peer (slower)",
                commands=("export NCCL_P2P_DISABLE=1",),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
