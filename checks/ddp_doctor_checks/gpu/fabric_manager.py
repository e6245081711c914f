"""DDP406: the NVSwitch fabric is not up, so no process can use the GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState, GpuNode
from ddp_doctor.facts.gpu_views import SEEN, gpu_views
from ddp_doctor.facts.p2p import PairRoute
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Told
from ddp_doctor_checks import communicator

SYSTEM_NOT_READY = 802


class FabricManager(Check):
    id, name = "DDP406", "fabric-manager"
    title = "NVSwitch fabric not initialised"
    needs = (DriverGpu, CudaView, GpuNode)
    also_reads = (*SEEN, PairRoute, *communicator.READS)
    told = Told(
        because="GPUs behind NVSwitches work together only while the fabric manager of the driver's own version runs",
        fixes=(
            Fix(
                title="look at it, and start it again while no job runs",
                commands=(
                    "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 -i fabric",
                    "sudo systemctl restart nvidia-fabricmanager",
                ),
                needs="root",
            ),
            Fix(title="prove it (a test, not the fix)", commands=("export NCCL_NVLS_ENABLE=0",), needs="job restart"),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return communicator.without_gpu_or_trial(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        tried = communicator.shows(self.id, facts)
        yield from communicator.findings(self, facts)
        refused_pairs = [route for route in facts[PairRoute] if route.route == "fails" and route.first < route.second]
        if refused_pairs and not tried:
            yield self._refused(refused_pairs)
        for seen in gpu_views(facts):
            refused = seen.cuda is not None and seen.cuda.code == SYSTEM_NOT_READY
            waiting = [gpu for gpu in seen.gpus if gpu.fabric_state in ("not-started", "in-progress")]
            failed = [gpu for gpu in seen.gpus if gpu.fabric_state == "completed" and gpu.fabric_status]
            if not (refused or waiting or failed):
                continue
            states = [
                gpu.evidence(f"{gpu.label}: fabric {gpu.fabric_state}, status {gpu.fabric_status}")
                for gpu in (waiting + failed)[:2]
            ]
            manager = seen.node.fabric_manager if seen.node else ""
            quoted = [seen.node.evidence(f"nvidia-fabricmanager is {manager}")] if seen.node and manager else []
            if refused and seen.cuda:
                summary = (
                    "CUDA does not start: the NVSwitch fabric is not initialised (system not yet initialized, 802)"
                )
                quoted.append(seen.cuda.evidence())
            else:
                summary = f"not registered with the NVSwitch fabric: {len(waiting + failed)} of {len(seen.gpus)} GPUs"
            version = seen.driver.driver_version if isinstance(seen.driver, DriverState) else ""
            yield self.finding(
                summary,
                because="on NVSwitch machines the fabric manager must have set up the links before a GPU can be used; "
                f"its version must be the driver's{f', {version}' if version else ''}",
                evidence=[*quoted, *states],
                fixes=[
                    Fix(
                        title="start the fabric manager of the driver's version, then look at the fabric state",
                        commands=(
                            "sudo systemctl restart nvidia-fabricmanager && systemctl status nvidia-fabricmanager",
                            "nvidia-smi -q | grep -A3 -i fabric",
                        ),
                        needs="root",
                    )
                ],
                confidence=Confidence.CERTAIN if refused else Confidence.LIKELY,
            )

    def _refused(self, routes: Sequence[PairRoute]) -> Finding:
        named = ", ".join(f"{route.first}-{route.second}" for route in routes[:6])
        return self.finding(
            f"the driver refuses P2P between GPUs that NVLink connects: {named}",
            because=f"NCCL {routes[0].version} takes this for a fault and ends; a link or the fabric manager is down",
            evidence=[route.evidence() for route in routes[:3]],
            fixes=[communicator.LOOK_AT_LINKS],
            confidence=Confidence.LIKELY,
        )
