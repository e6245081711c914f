"""Environments in which jobs start well: the launch checks say nothing at warning or above, and rank k of n is seen."""

from __future__ import annotations

import pytest
from launching import launch_checks, meant, tree, variables

from ddp_doctor.facts.host import Limit, Memory, ShmSpace
from ddp_doctor.facts.launch import Ancestor, Variable
from ddp_doctor.interpret.launcher import started_by
from ddp_doctor.judge import judge
from ddp_doctor.model import Fact, Facts, Severity

Setting = tuple[list[Variable], list[Ancestor], "tuple[str, int, int] | None"]

SHELL = ("bash", "sshd: me@pts/0", "sshd", "systemd")
IN_POD = {"contained": True}
ELASTIC = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
    "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "4", "ROLE_NAME": "default", "MASTER_ADDR": "gpu-1", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
SLURM_JOB = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_NODEID": "1",
    "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "4",
}  # fmt: skip
SLURM_STEP = SLURM_JOB | {
    "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}  # fmt: skip
ONE_TASK_PER_NODE = SLURM_STEP | {
    "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "1",
}  # fmt: skip
MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "1",
}  # fmt: skip
POD = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456", "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "auto",
    "PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456",
}  # fmt: skip
ELASTIC_POD = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1", "PET_NNODES": "1:3", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "job",
    "PET_RDZV_ENDPOINT": "job-worker-0:23456", "PET_NPROC_PER_NODE": "4", "PET_MAX_RESTARTS": "10",
}  # fmt: skip
RAY = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0",
    "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "41311", "ACCELERATE_TORCH_DEVICE": "cuda:1",
}  # fmt: skip
LIGHTNING_CHILD = {
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "42017", "NODE_RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2",
    "PL_GLOBAL_SEED": "7",
}  # fmt: skip
FIT = "python fit.py --epochs 3"

HEALTHY: dict[str, Setting] = {
    "plain shell": (variables({"OMP_NUM_THREADS": "8"}), tree("ddp-doctor", *SHELL), None),
    "torchrun worker": (
        variables(ELASTIC),
        tree("python train.py", "pt_elastic", *SHELL),
        ("torchrun", 3, 4),
    ),
    "torchrun worker of an old torch": (
        variables(ELASTIC),
        tree("python -u train.py", "python3 -m torch.distributed.run --nproc_per_node=2 train.py", *SHELL),
        ("torchrun", 3, 4),
    ),
    "script started by a torchrun worker": (
        variables(ELASTIC),
        tree("ddp-doctor", "sh -c ddp-doctor", "python train.py", "python /venv/bin/torchrun train.py", *SHELL),
        ("torchrun", 3, 4),
    ),
    "worker forked by notebook_launcher": (
        variables(ELASTIC, inherited=False),
        tree("python -m ipykernel_launcher -f k.json", "python -m ipykernel_launcher -f k.json", "jupyter-lab", "systemd"),
        ("torchrun", 3, 4),
    ),
    "srun task": (
        variables(SLURM_STEP | {"PMI_RANK": "5", "PMI_SIZE": "8"}),
        tree("python train.py", "slurmstepd: [4711.0]", "slurmd", "systemd"),
        ("slurm", 5, 8),
    ),
    "srun task that maps its variables": (
        variables(SLURM_STEP | {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}),
        tree("python train.py", "bash wrapper.sh", "slurmstepd: [4711.0]", "systemd"),
        ("slurm", 5, 8),
    ),
    "torchrun in one task per node": (
        variables(ONE_TASK_PER_NODE | ELASTIC),
        tree("python train.py", "pt_elastic", "slurmstepd: [4711.0]", "systemd"),
        ("torchrun", 3, 4),
    ),
    "one task per node that spawns its ranks": (
        variables(ONE_TASK_PER_NODE | {"WORLD_SIZE": "16", "MASTER_ADDR": "gpu-1"}),
        tree("python train.py", "slurmstepd: [4711.0]", "systemd"),
        ("slurm", 1, 2),
    ),
    "a sweep of torchrun --standalone": (
        variables(
            SLURM_STEP
            | ELASTIC
            | {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "0a7e51c0-9a51-4b39-9ee5-e44f1bbb52a9"}
        ),
        tree("python train.py", "pt_elastic", "slurmstepd: [4711.0]", "systemd"),
        ("torchrun", 3, 4),
    ),
    "sbatch shell": (
        variables(SLURM_JOB | {"WORLD_SIZE": "8", "MASTER_ADDR": "gpu-1", "MASTER_PORT": "15011"}),
        tree("ddp-doctor", "bash slurm_script", "slurmstepd: [4711.batch]", "systemd"),
        None,
    ),
    "salloc shell on the login node": (
        variables(SLURM_JOB),
        tree("ddp-doctor", "bash", "salloc -N2 -n8", *SHELL),
        None,
    ),
    "salloc shell as an interactive step": (
        variables(SLURM_JOB | {"SLURM_STEP_ID": "4294967290"}),
        tree("ddp-doctor", "bash", "slurmstepd: [4711.interactive]", "systemd"),
        None,
    ),
    "srun of a container with its own processes": (
        variables(SLURM_STEP),
        tree("python train.py", "bash run.sh", contained=True, given=list(SLURM_STEP)),
        ("slurm", 5, 8),
    ),
    "docker exec into such a container": (
        variables(SLURM_STEP),
        tree("ddp-doctor", "bash", top=77, contained=True, given=list(SLURM_STEP)),
        None,
    ),
    "mpirun rank": (
        variables(MPI),
        tree("python train.py", "mpirun -n 2 python train.py", *SHELL),
        ("mpi", 1, 2),
    ),
    "Intel MPI rank": (
        variables({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}),
        tree("python train.py", "hydra_pmi_proxy", "mpiexec.hydra -n 2 python train.py", *SHELL),
        ("mpi", 0, 2),
    ),
    "Kubeflow PyTorchJob": (
        variables(POD),
        tree("ddp-doctor", "bash -c ddp-doctor", given=list(POD), **IN_POD),  # type: ignore[arg-type]
        ("kubernetes", 1, 2),
    ),
    "elastic PyTorchJob": (
        variables(ELASTIC_POD),
        tree("ddp-doctor", "bash", given=list(ELASTIC_POD), **IN_POD),  # type: ignore[arg-type]
        None,
    ),
    "kubectl exec into its pod": (
        variables(POD),
        tree("ddp-doctor", "bash", top=77, given=list(POD), **IN_POD),  # type: ignore[arg-type]
        None,
    ),
    "Ray Train worker": (
        [*variables({"RAY_ADDRESS": "10.0.0.7:6379", "RAY_JOB_ID": "01"}), *variables(RAY, inherited=False)],
        tree("ray::RayTrainWorker", "raylet --node_ip_address=10.0.0.7", "systemd"),
        ("ray", 1, 2),
    ),
    "Lightning rank 0": (
        variables(LIGHTNING_CHILD | {"LOCAL_RANK": "0"}, inherited=False),
        tree(FIT, *SHELL),
        None,
    ),
    "Lightning child": (variables(LIGHTNING_CHILD), tree(FIT, FIT, *SHELL), None),
    "Lightning on a cluster of one's own": (
        variables(LIGHTNING_CHILD | {"NODE_RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "gpu-1"}),
        tree(FIT, *SHELL),
        None,
    ),
    "accelerate launch": (
        variables(ELASTIC | {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_DYNAMO_BACKEND": "NO"}),
        tree("python train.py", "accelerate launch train.py", *SHELL),
        ("torchrun", 3, 4),
    ),
    "DeepSpeed": (
        variables(
            {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1",
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NCCL_ASYNC_ERROR_HANDLING": "1"}
        ),
        tree("python -u train.py", "python -u -m deepspeed.launcher.launch --world_info=e", "deepspeed train.py", *SHELL),
        ("deepspeed", 1, 2),
    ),
    "ranks started by hand": (
        variables({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "gpu-1", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}),
        tree("ddp-doctor", *SHELL),
        ("by hand", 0, 2),
    ),
    "node 0 of two, started by hand": (
        variables(
            {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
             "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "29500"}
        ),
        tree("ddp-doctor", *SHELL),
        ("by hand", 0, 4),
    ),
    "node 1 of two on one machine, started by hand": (
        variables(
            {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
             "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        ),
        tree("ddp-doctor", *SHELL),
        ("by hand", 2, 4),
    ),
    "a container per rank": (
        variables({"LOCAL_RANK": "1", "NODE_RANK": "1"}),
        tree("ddp-doctor", "bash", given=("LOCAL_RANK", "NODE_RANK"), **IN_POD),  # type: ignore[arg-type]
        None,
    ),
    "mp.spawn with WORLD_SIZE exported": (variables({"WORLD_SIZE": "2"}), tree("python train.py", *SHELL), None),
    "jupyter": (
        variables({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1"}),
        tree("python -m ipykernel_launcher -f k.json", "python /opt/jupyter-lab", "tini", **IN_POD),  # type: ignore[arg-type]
        None,
    ),
    "CI runner": (
        variables({"http_proxy": "http://proxy:3128", "OMP_NUM_THREADS": "2"}),
        tree("python -m pytest", "bash -e /step.sh", "Runner.Worker", "Runner.Listener", "systemd"),
        None,
    ),
    "conda shell with NCCL settings": (
        variables({"NCCL_DEBUG": "info", "NCCL_SOCKET_IFNAME": "^lo,docker0", "NCCL_P2P_DISABLE": "1", "LD_PRELOAD": "a.so",
                   "NCCL_IB_HCA": "mlx5_0:1", "TORCH_DISTRIBUTED_DEBUG": "DETAIL", "NCCL_SOCKET_FAMILY": "AF_INET"}),
        tree("ddp-doctor", *SHELL),
        None,
    ),
}  # fmt: skip

MACHINES: dict[str, list[Fact]] = {
    "workstation": [
        Limit(source="ulimit -n", name="nofile", soft=1024, hard=1048576),
        Limit(source="ulimit -u", name="nproc", soft=127000, hard=127000, used=900),
        Limit(source="ulimit -l", name="memlock", soft=8 << 20, hard=8 << 20),
        Memory(source="/proc/meminfo", available=8 << 30, total=16 << 30),
        ShmSpace(source="/dev/shm", size=8 << 30, free=8 << 30, gpus=1, leftovers=()),
    ],
    "docker without GPU": [
        Limit(source="ulimit -n", name="nofile", soft=1048576, hard=1048576),
        Limit(source="/sys/fs/cgroup/pids.max", name="pids", soft=4096, hard=4096, used=12),
        Limit(source="ulimit -l", name="memlock", soft=64 << 10, hard=64 << 10),
        Memory(source="/sys/fs/cgroup/memory.max", available=1 << 30, total=2 << 30),
        ShmSpace(source="/dev/shm", size=64 << 20, free=64 << 20, gpus=0, leftovers=()),
    ],
    "RDMA node": [
        Limit(source="ulimit -l", name="memlock", soft=None, hard=None, needed_by=("mlx5_0",)),
        Memory(source="/proc/meminfo", available=1 << 40, total=2 << 40),
        ShmSpace(source="/dev/shm", size=1 << 40, free=1 << 40, gpus=8, leftovers=None),
    ],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_at_warning_or_above(name: str) -> None:
    environ, ancestors, expected = HEALTHY[name]
    judged = judge(launch_checks(), Facts(meant(*environ, *ancestors)))
    assert [finding for item in judged for finding in item.findings if finding.severity is not Severity.NOTE] == []
    assert [item.outcome for item in judged if item.outcome.status == "crashed"] == []
    launcher = started_by(Facts((*environ, *ancestors)))
    assert (launcher and (launcher.name, launcher.rank, launcher.world_size)) == expected


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_with_room_is_healthy(name: str) -> None:
    judged = judge(launch_checks(), Facts(MACHINES[name]))
    assert [finding for item in judged for finding in item.findings if finding.severity is not Severity.NOTE] == []
