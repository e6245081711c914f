"""DDP105: more ranks per node than CUDA shows GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import CudaView
from ddp_doctor.facts.gpu_views import READS, gpu_views, without_gpu
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.facts.script import MaskAssignment
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Told
from ddp_doctor_checks.launch.nproc_gt_gpus_script import from_script


class NprocGtGpus(Check):
    id, name = "DDP105", "nproc-gt-gpus"
    title = "More ranks than GPUs on a node"
    needs = ((CudaView, MaskAssignment), (Launcher, TrialRank, MaskAssignment))
    also_reads = READS
    told = Told(
        because="each local rank takes the GPU of its own number; a number at or above the count of visible GPUs does not "
        "exist",
        fixes=(
            Fix(
                title="start as many ranks as GPUs are visible",
                commands=("torchrun --standalone --nproc-per-node=gpu train.py",),
                needs="job restart",
            ),
            Fix(
                title="see what each rank can see",
                commands=("echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",),
                needs="nothing",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return "" if facts[MaskAssignment] else without_gpu(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for found in from_script(facts):
            yield self.finding(**found)
        for seen in gpu_views(facts):
            cuda, whole, ranks = seen.cuda, seen.whole, seen.ranks
            if ranks is None or cuda is None or not cuda.count or not seen.torch_cuda or ranks[0] <= cuda.count:
                continue
            if any(gpu.mig for gpu in seen.visible):
                continue
            # one GPU of more: each rank may have a mask or a cgroup of its own, and then 1 is right
            on_bus = len(seen.node.pci or ()) if seen.node else 0
            there = max(on_bus, whole.count if whole and whole.count else 0, len(seen.gpus))
            if cuda.count == 1 and there >= ranks[0]:
                continue
            yield self.finding(
                f"{ranks[0]} ranks on this node, {cuda.count} visible GPUs",
                because=f"set_device(LOCAL_RANK) of local rank {cuda.count} and up fails with `invalid device ordinal`, "
                "or two ranks share a GPU, which NCCL refuses; the other ranks wait",
                evidence=[ranks[1], cuda.evidence()],
                fixes=[
                    Fix(
                        title="start one rank per visible GPU",
                        commands=(f"torchrun --nproc-per-node={cuda.count} ...",),
                    )
                ],
                confidence=Confidence.LIKELY,
            )
