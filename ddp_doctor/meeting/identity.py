"""What names a job, so that its ranks find each other whatever they think MASTER_ADDR and MASTER_PORT are."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

FIRST_PORT, PORTS = 20100, 8000
"""Below the range from which the kernel takes ports for outgoing connections, and beside torch's usual ones."""
PASSED_OVER = ("bash", "sh", "dash", "zsh", "ksh", "env", "numactl", "taskset", "nice", "timeout", "pixi", "uv")
"""What stands between a launcher and its rank without being either."""
RAY_WORKER = "ray::"
"""How the name of a Ray worker begins: each rank has one of its own, below the raylet of its node."""
MOST_STEPS = 8


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a job on this host, and between hosts. `sure` says that a launcher gave it, not merely a shell."""

    here: str
    everywhere: str
    port: int
    sure: bool


def identity(
    environ: Mapping[str, str], *, spawned: bool, script: str, parent: int | None = None, meet_port: int | None = None
) -> Identity:
    """The identity of the job that this process is a rank of. `spawned` says that multiprocessing made the process.

    On one host it is the launcher, by PID and start time, or the scheduler's step; between hosts the run id, the
    scheduler's step, or the store's port where nothing else names the job.
    """
    job = _job(environ)
    launched = bool(job)
    sure = launched or spawned
    if "SLURM_STEP_ID" in environ and job.startswith("slurm"):
        here = job
    else:
        pid = _launcher(os.getppid() if parent is None else parent, launched)
        here = f"{pid}@{start_time(pid)} {job}" if sure else f"{pid}@{start_time(pid)} {script}"
    again = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    everywhere = f"{job or 'by hand'} port {_port_of_store(environ, job)} start {again}"
    digest = hashlib.sha256(everywhere.encode("utf-8", "surrogateescape")).hexdigest()
    return Identity(
        here=hashlib.sha256(f"{here} start {again}".encode("utf-8", "surrogateescape")).hexdigest()[:32],
        everywhere=digest[:32],
        port=meet_port or FIRST_PORT + int(digest[:8], 16) % PORTS,
        sure=sure,
    )


def _job(environ: Mapping[str, str]) -> str:
    """What the launcher or scheduler calls this job; empty where the ranks were started by hand."""
    if "TORCHELASTIC_RUN_ID" in environ:
        return f"torchrun {environ['TORCHELASTIC_RUN_ID']}"
    if "SLURM_PROCID" in environ and "SLURM_STEP_ID" in environ:
        return f"slurm {environ.get('SLURM_JOB_ID', '')}.{environ['SLURM_STEP_ID']}"
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "HYDI_CONTROL_FD"):
        if name in environ:
            return f"mpi {environ[name] if name != 'HYDI_CONTROL_FD' else ''}"
    if "RAY_RAYLET_PID" in environ and "RANK" in environ:
        # a worker that was started ahead does not have its job's id, and one job may train several models side by side:
        # Ray gives each its port
        return f"ray {environ.get('MASTER_PORT', '')}"
    return ""


def _port_of_store(environ: Mapping[str, str], job: str) -> str:
    # two runs may both be called `none`, torchrun's default, but one agent's port cannot be another's; ranks may
    # disagree about the port, so it counts only where no better name is there
    named = job not in ("", "torchrun none", "torchrun ", "mpi ")
    return "" if named else environ.get("PET_MASTER_PORT") or environ.get("MASTER_PORT", "")


def _launcher(pid: int, launched: bool) -> int:
    """The process that started the ranks; below a launcher, shells and wrappers in between are passed over."""
    for _ in range(MOST_STEPS if launched else 0):
        command, above = _stat(pid)
        if not (command in PASSED_OVER or command.startswith(RAY_WORKER)) or above <= 1:
            break
        pid = above
    return pid


def start_time(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None where it is gone."""
    try:
        tail = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(tail[19])
    except (OSError, ValueError, IndexError):
        return None


def state(pid: int) -> str:
    """The kernel's state letter of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def _stat(pid: int) -> tuple[str, int]:
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")
        return head.partition(b"(")[2].decode("utf-8", "replace"), int(tail.split()[1])
    except (OSError, ValueError, IndexError):
        return "", 0
