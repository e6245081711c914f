"""DDP404: each rank of this node is shown one GPU only, so NCCL cannot reach the others' directly."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import DriverState, GpuNode
from ddp_doctor.facts.gpu_views import READS, gpu_views
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks import communicator

SLURM = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK")


class GpuIsolation(Check):
    id, name = "DDP404", "gpu-isolation"
    title = "Ranks that are shown one GPU each"
    needs = (DriverState, GpuNode, Launcher)
    also_reads = (*READS, *communicator.READS)
    told = Told(
        because="ranks of one machine share memory through CUDA IPC and /dev/shm; where each sees only its own, they "
        "cannot find each other's",
        fixes=(
            Fix(
                title="let every task of a node see all its GPUs and one /dev/shm",
                commands=(
                    "srun --gpus-per-node=4 --ntasks-per-node=4 python train.py   # instead of \\",
                    "    --gpus-per-task",
                    "docker run --ipc=host --gpus all IMAGE",
                ),
                needs="job restart",
            ),
            Fix(
                title="or tell NCCL that the containers are separate machines",
                commands=("export NCCL_HOSTID=$(hostname)-$RANK",),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return communicator.without_gpu_or_trial(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for seen in gpu_views(facts):
            node, driver, ranks = seen.node, seen.driver, seen.ranks
            if node is None or driver is None or driver.gpus != 1 or ranks is None or ranks[0] < 2:
                continue
            on_bus = len(node.pci or ())
            binding = [f"{name}={node.variables[name]}" for name in SLURM if name in node.variables]
            if on_bus < ranks[0]:
                continue
            yield self.finding(
                f"{ranks[0]} ranks run on this node, but the driver shows this process 1 of the {on_bus} GPUs on the bus",
                because="ranks that cannot see each other's GPU are connected through shared memory or the network; "
                "each must use device 0, and some NCCL versions stop at `invalid device ordinal` or at attaching",
                evidence=[
                    driver.evidence(),
                    node.evidence(", ".join([f"{on_bus} NVIDIA GPUs on the PCI bus", *binding])),
                    ranks[1],
                ],
                fixes=[
                    Fix(
                        title="show all of the job's GPUs to all its ranks, and let each choose with set_device(LOCAL_RANK)",
                        commands=(f"srun --gpus-per-node={ranks[0]} --gpu-bind=none ...",),
                    )
                ],
                severity=Severity.NOTE,
                confidence=Confidence.LIKELY,
            )
