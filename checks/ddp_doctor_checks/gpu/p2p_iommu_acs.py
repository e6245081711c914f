"""DDP401: P2P is promised by the driver, and the data does not arrive or arrives wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.facts.p2p import PairRoute
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import communicator, pair_evidence


class P2pIommuAcs(Check):
    id, name = "DDP401", "p2p-iommu-acs"
    title = "Data between GPUs is lost or damaged on its way (IOMMU, ACS)"
    needs = (CommunicatorStop,)
    also_reads = (*communicator.READS, *pair_evidence.READS)
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
        return "" if pair_evidence.blamed(facts) else communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        if pair_evidence.blamed(facts):
            yield from pair_evidence.findings(self, facts)
        elif facts[CommunicatorStop]:
            yield from communicator.findings(self, facts)
        else:
            yield from self._untried(facts)

    def _untried(self, facts: Facts) -> Iterator[Finding]:
        """GPUs in use are left alone, so of them only the settings can be told."""
        over_pci = {
            (route.first, route.second)
            for route in facts[PairRoute]
            if route.route == "p2p" and route.link not in ("nvlink", None)
        }
        for pair, way in pair_evidence.ways(facts).items():
            if pair in over_pci and way.redirecting:
                yield self.finding(
                    f"{way.text()}: GPUs {pair[0]}-{pair[1]}, between which NCCL uses P2P; if it arrives was not tried",
                    because="on some machines such data is lost, and NCCL's kernels wait for it; on others it is only slower",
                    evidence=pair_evidence.surroundings(facts),
                    fixes=[
                        Fix(
                            title="try it while no process uses the GPUs",
                            commands=("ddp-doctor run",),
                            needs="free GPUs",
                        ),
                        *pair_evidence.fixes(facts),
                    ],
                    severity=Severity.NOTE,
                    confidence=Confidence.POSSIBLE,
                )
                return
