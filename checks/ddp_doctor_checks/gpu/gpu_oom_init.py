"""DDP409: too little GPU memory is free for a CUDA context and NCCL's buffers."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import CudaView, DriverGpu
from ddp_doctor.facts.gpu_views import SEEN, gpu_views
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks import communicator

CONTEXT_MIB = 500
"""About what a CUDA context with NCCL's kernels takes before a tensor is allocated."""
HEADROOM_MIB = 1024


class GpuOomInit(Check):
    id, name = "DDP409", "gpu-oom-init"
    title = "No GPU memory left for a rank to start"
    needs = (DriverGpu, CudaView)
    also_reads = (*SEEN, *communicator.READS)
    told = Told(
        because="NCCL allocates its buffers at the first collective; a GPU that is full by then has no room for them",
        fixes=(
            Fix(
                title="leave room, and bring the communicator up before the model fills the GPU",
                commands=(
                    'dist.all_reduce(torch.zeros(1, device="cuda"))   # right after init_process_group and set_device',
                ),
                needs="code change, job restart",
            ),
            Fix(
                title="see who else holds memory",
                commands=("nvidia-smi --query-compute-apps=pid,used_memory --format=csv",),
                needs="nothing",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return communicator.without_gpu_or_trial(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for seen in gpu_views(facts):
            for gpu in seen.visible:
                free, used, total = gpu.memory_free, gpu.memory_used, gpu.memory_total
                if free is None or used is None or total is None or free >= HEADROOM_MIB or 2 * used < total:
                    continue
                held = "; ".join(process.text() for process in gpu.processes)
                pids = " ".join(str(process.pid) for process in gpu.processes)
                yield self.finding(
                    f"{gpu.label} has {free} of {total} MiB free; {held or 'NVML lists no process here'}",
                    because=f"a CUDA context and NCCL's buffers take {CONTEXT_MIB} MiB or more before the first tensor; "
                    "the rank on this GPU ends with `out of memory` and the others only see a closed connection",
                    evidence=[gpu.evidence(f"{gpu.text()}; {held}")],
                    fixes=[
                        Fix(
                            title="see whose they are; end them or leave this GPU out",
                            commands=(f"ps -o pid,ppid,user,lstart,cmd -p {pids.replace(' ', ',')}",)
                            if pids
                            else ("sudo fuser -v /dev/nvidia*",),
                            needs="the owner's consent",
                        )
                    ],
                    severity=Severity.ERROR if free < CONTEXT_MIB else Severity.WARNING,
                    confidence=Confidence.LIKELY,
                )
