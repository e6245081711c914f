"""What to type where a limit is too low."""

from __future__ import annotations

from ddp_doctor.facts.host import Limit, size
from ddp_doctor.model import Fix

PORTS = Fix(
    title="give the kernel its usual range back",
    commands=('sysctl -w net.ipv4.ip_local_port_range="32768 60999"',),
    needs="root",
)


def words(limit: Limit) -> tuple[str, str]:
    """What a limit of processor time, address space or ports does, and how that shows."""
    if limit.name == "ports":
        return (
            f"{max(limit.left or 0, 0)} of {limit.soft} ports are left for sockets that name none",
            "every connection between ranks and every listening socket of Gloo and NCCL takes one: `Address already in "
            "use`, `Cannot assign requested address`, or no answer",
        )
    if limit.name == "cpu":
        return (
            f"the kernel ends each process after {limit.soft} s of processor time",
            "importing torch alone takes seconds of it; a rank is ended by SIGXCPU or SIGKILL and the others wait",
        )
    return (
        f"a process may map {size(limit.soft or 0)} of memory",
        "torch's libraries alone take more: `failed to map segment`, `cannot allocate memory`, MemoryError",
    )


def by_ulimit(option: str, limit: Limit, enough: int | None, docker: str) -> list[Fix]:
    """Raise the soft limit as far as the hard one allows where that is enough (None: unlimited), else both, as root."""
    in_container = [Fix(title="in a container", commands=(docker,), needs="container restart")] if docker else []
    if limit.hard is None or (enough is not None and limit.hard >= enough):
        command = f"ulimit -S{option} {'unlimited' if limit.hard is None else limit.hard}"
        return [Fix(title="raise it in the shell that starts the job", commands=(command,)), *in_container]
    value = "unlimited" if enough is None else str(max(enough, 65536))
    return [
        Fix(
            title="raise both limits and start the job from that shell; for a job of Slurm or systemd, in its service",
            commands=(f"ulimit -H{option} {value} && ulimit -S{option} {value}",),
            needs="root",
        ),
        *in_container,
    ]


def by_cgroup(*commands: str) -> Fix:
    """A limit that a cgroup or container sets."""
    return Fix(title="raise the limit of the cgroup or container", commands=commands, needs="root or container restart")
