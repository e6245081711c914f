"""DDP403: the GPU is a vGPU or belongs to WSL2, where CUDA lacks what NCCL uses between GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import DriverGpu, GpuNode
from ddp_doctor.facts.gpu_views import READS, GpuViews, gpu_views, without_gpu
from ddp_doctor.facts.pcie import Machine
from ddp_doctor.model import Check, Confidence, Evidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks import pair_evidence

REFUSED = "operation not supported"


class VirtualisedGpu(Check):
    id, name = "DDP403", "virtualised-gpu"
    title = "Virtual GPUs: vGPU and WSL2"
    needs = (DriverGpu, GpuNode)
    also_reads = (*READS, *pair_evidence.READS)
    told = Told(
        because="virtual machines, vGPUs and WSL do not offer the mappings between GPUs that NCCL uses on bare metal",
        fixes=(
            Fix(
                title="see whether this is one",
                commands=("systemd-detect-virt; grep -i microsoft /proc/version",),
                needs="nothing",
            ),
            Fix(
                title="let NCCL go without the mappings",
                commands=("export NCCL_P2P_DISABLE=1   # and if it still hangs NCCL_SHM_DISABLE=1",),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return without_gpu(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from pair_evidence.findings(self, facts)
        below = [machine.evidence() for machine in facts[Machine] if machine.hypervisor]
        for seen in gpu_views(facts):
            virtual = [gpu for gpu in seen.visible if gpu.virtualization == "vgpu"]
            if virtual:
                yield self._vgpu(seen, virtual, below)
            elif seen.node is not None and seen.node.wsl and seen.node.has_gpu:
                yield self.finding(
                    "this is WSL2: its GPUs have no peer access and no legacy CUDA IPC",
                    because="NCCL falls back to shared memory between ranks; that is slower, not broken",
                    evidence=[seen.node.evidence("/proc/version names Microsoft, the GPU is /dev/dxg")],
                    fixes=[
                        Fix(
                            title="if a multi-GPU job stops at connect, say so to NCCL",
                            commands=("export NCCL_P2P_DISABLE=1",),
                        )
                    ],
                    severity=Severity.NOTE,
                )

    def _vgpu(self, seen: GpuViews, virtual: list[DriverGpu], below: list[Evidence]) -> Finding:
        refused = seen.torch is not None and REFUSED in seen.torch.error
        return self.finding(
            f"{virtual[0].label} is a vGPU"
            + (f", and torch says `{REFUSED}`: unified memory is off for it" if refused else ""),
            because="a vGPU has unified memory, which CUDA needs, and peer access only where the hypervisor allows them",
            evidence=[
                virtual[0].evidence(f"{virtual[0].label}: virtualisation mode vgpu"),
                *below,
                *seen.evidence(seen.torch),
            ],
            fixes=[
                Fix(
                    title="on the KVM host, allow unified memory for this vGPU before its machine starts",
                    commands=('echo "enable_uvm=1" | sudo tee /sys/bus/mdev/devices/VGPU_UUID/nvidia/vgpu_params',),
                    needs="cluster admin",
                )
            ],
            severity=Severity.ERROR if refused else Severity.NOTE,
            confidence=Confidence.LIKELY,
        )
