"""DDP413: GPUs that are in the machine are not there for CUDA or torch."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import CudaView, DriverState, GpuGap, GpuNode
from ddp_doctor.facts.gpu_views import READS, GpuViews, gpu_views, why_not_nvidia
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks import communicator


class GpuNotVisible(Check):
    id, name = "DDP413", "gpu-not-visible"
    title = "GPUs that CUDA or torch does not see"
    needs = (GpuNode, DriverState, CudaView, TorchInstall)
    also_reads = (*READS, GpuGap, *communicator.READS)
    told = Told(
        because="the process sees no GPU that works, and NCCL is for GPUs only",
        fixes=(
            Fix(
                title="see which view lacks it",
                commands=(
                    "nvidia-smi -L; ls /dev/nvidia*; echo $CUDA_VISIBLE_DEVICES",
                    "python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'",
                ),
                needs="nothing",
            ),
            Fix(
                title="without GPUs use Gloo",
                commands=('dist.init_process_group("gloo")',),
                needs="code change, job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if communicator.shows(self.id, facts):
            return ""
        return why_not_nvidia(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for seen in gpu_views(facts):
            gap = next((gap for gap in facts[GpuGap] if gap.subject.host == seen.host), None)
            if gap is not None and not _told_elsewhere(seen, gap) and (_wants_gpus(seen, gap) or gap.malformed):
                yield self._found(seen, gap)

    def _found(self, seen: GpuViews, gap: GpuGap) -> Finding:
        severity = Severity.ERROR
        if gap.on_purpose:
            severity = Severity.NOTE
        elif not gap.malformed and (gap.step == "mask" or seen.build is None):
            severity = Severity.WARNING
        inferred = gap.step in ("silent-driver", "torch") or severity is Severity.WARNING
        # without libcuda nothing here shows what CUDA makes of the mask
        inferred |= gap.malformed and not (seen.cuda and seen.cuda.library)
        written = [gap.evidence(gap.meaning.split(": ")[0])] if gap.step == "mask" else []
        return self.finding(
            gap.meaning,
            because=gap.because,
            evidence=[*written, *seen.evidence(seen.node, seen.driver, seen.cuda, seen.torch)],
            fixes=_fixes(seen, gap),
            severity=severity,
            confidence=Confidence.LIKELY if inferred else Confidence.CERTAIN,
        )


def _wants_gpus(seen: GpuViews, gap: GpuGap) -> bool:
    there = gap.step == "silent-driver" or bool(seen.node and seen.node.has_gpu)
    return bool(seen.torch_cuda) or (seen.build is None and there)


def _told_elsewhere(seen: GpuViews, gap: GpuGap) -> bool:
    """Gaps whose cause has an id of its own: versions (501), fabric manager (406), exclusive mode (408)."""
    cuda = {view.code for view in (seen.cuda, seen.whole) if view is not None}
    if gap.step == "torch":
        words = seen.torch.error if seen.torch else ""
        return "too old" in words or "insufficient" in words
    return (gap.step == "nvml" and seen.driver is not None and seen.driver.code == 18) or (
        gap.step in ("cuda", "device-node", "nvml") and bool(cuda & {46, 802, 803, 804})
    )


def _fixes(seen: GpuViews, gap: GpuGap) -> list[Fix]:
    container = bool(seen.node and seen.node.container)
    if gap.step == "mask" and not gap.malformed and not gap.on_purpose:
        return [
            Fix(title="ask Slurm for GPUs", commands=("srun --gres=gpu:1 nvidia-smi -L",), needs="a new allocation")
        ]
    if gap.step == "mask":
        repair = f"export CUDA_VISIBLE_DEVICES={gap.mended}" if gap.mended else "unset CUDA_VISIBLE_DEVICES"
        return [Fix(title="name each GPU of this node once, or none at all", commands=(repair,))]
    if gap.step == "device":
        return [Fix(title="use Gloo here", commands=('dist.init_process_group("gloo")',), needs="code change")]
    if gap.step == "silent-driver":
        look = ("ps -eo pid,ppid,stat,wchan:32,cmd | awk '$3 ~ /^D/'", "sudo dmesg -T | grep -iE 'NVRM|Xid' | tail")
        return [
            Fix(
                title="see what the driver is stuck in; a GPU behind an Xid needs a reset or a reboot",
                commands=look,
                needs="root",
            )
        ]
    if gap.step == "torch":
        return [
            Fix(
                title="see why torch refuses",
                commands=("python -c 'import torch; torch.cuda.init()'",),
                needs="nothing",
            )
        ]
    if container:
        return [
            Fix(
                title="start the container with the GPUs and both halves of the driver",
                commands=("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi -L",),
                needs="container restart",
            )
        ]
    if gap.step == "device-node" and "cgroup" in gap.meaning:
        return [
            Fix(
                title="let the job have the GPUs",
                commands=("srun --gres=gpu:1 nvidia-smi -L",),
                needs="a new allocation",
            )
        ]
    return [
        Fix(
            title="load the driver and make its device files",
            commands=("sudo nvidia-modprobe -u -c=0 && nvidia-smi -L",),
            needs="root, an installed driver",
        )
    ]
