"""DDP411: a library that shares out GPUs sits between every process and CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import GpuNode
from ddp_doctor.facts.gpu_views import READS, gpu_views, without_gpu
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told

KNOWN = ("libvgpu.so", "libcuda-control.so", "libcontroller.so", "libgemhook.so", "libcuda_hook", "libvcuda")
OFF = "CUDA_DISABLE_CONTROL"


class CudaInterposer(Check):
    id, name = "DDP411", "cuda-interposer"
    title = "A preloaded GPU-sharing library"
    needs = (GpuNode,)
    also_reads = READS
    told = Told(
        because="a preloaded library that shares GPUs wraps CUDA calls and dead-locks or refuses those that NCCL makes",
        fixes=(
            Fix(
                title="run without it",
                commands=(
                    "env -u LD_PRELOAD CUDA_DISABLE_CONTROL=true torchrun --standalone --nproc-per-node=2 train.py",
                    "cat /etc/ld.so.preload",
                ),
                needs="whole GPUs, container restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return without_gpu(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for seen in gpu_views(facts):
            node = seen.node
            if node is None or node.variables.get(OFF, "").lower() == "true":
                continue
            found = [path for path in node.preloaded if path.rsplit("/", 1)[-1].startswith(KNOWN)]
            limits = [f"{name}={value}" for name, value in node.variables.items() if "_LIMIT" in name]
            if not found:
                continue
            several = len(seen.visible) > 1 or (seen.ranks is not None and seen.ranks[0] > 1)
            yield self.finding(
                f"{found[0]} is loaded into every process and answers in CUDA's place",
                because="it keeps locks and limits of its own around CUDA calls; between several ranks NCCL's "
                "initialisation is known to hang in it, and it looks like a P2P fault",
                evidence=[node.evidence(", ".join([f"preloaded: {' '.join(found)}", *limits]))],
                fixes=[
                    Fix(title="switch it off for this job (HAMi)", commands=(f"export {OFF}=true",)),
                    Fix(
                        title="ask for whole GPUs, for which it is not needed",
                        commands=("nvidia-smi -L",),
                        needs="a new pod",
                    ),
                ],
                severity=Severity.WARNING if several else Severity.NOTE,
                confidence=Confidence.LIKELY,
            )
