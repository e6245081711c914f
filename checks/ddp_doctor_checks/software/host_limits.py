"""DDP503: the limits of this shell or container stop torch, its threads or its memory."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.host import Limit, Memory, size
from ddp_doctor.facts.software import TorchRuntime, TrialRank
from ddp_doctor.model import ANY_STAGE, Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks.software.host_limits_fixes import PORTS, by_cgroup, by_ulimit, words
from ddp_doctor_checks.software.refused import ended_by, no_port

FILES_TORCH_NEEDS = 48
"""With 32 two ranks under torchrun abort, with 48 they initialise Gloo (torch 2.13, CPU)."""
FILES_FOR_COMFORT = 256
TASKS_A_RANK_NEEDS = 32
TASKS_FOR_COMFORT = 128
MEMLOCK_FOR_RDMA = 64 << 20
SECONDS_OF_CPU = 60
SECONDS_OF_AN_IMPORT = 10
SPACE_TORCH_NEEDS = 1 << 30
PORTS_A_RANK_NEEDS = 8
PORTS_FOR_COMFORT = 64
MEMORY_TORCH_NEEDS = 256 << 20
"""Importing the CPU build takes about 200 MiB per rank."""


class HostLimits(Check):
    """Files, processes, locked memory and memory suffice for a rank to start."""

    id, name = "DDP503", "host-limits"
    title = "A limit of the shell or container is too low"
    needs = (Limit, Memory)
    also_reads = (TorchRuntime, TrialRank)
    acts_at = ANY_STAGE
    told = Told(
        because="the node ran out of memory, processes or files; the rank that was refused or killed is the victim, and "
        "what the others print is an echo",
        fixes=(
            Fix(
                title="see which limit it was",
                commands=(
                    "sudo dmesg -T | grep -iE 'killed process|oom'; cat /sys/fs/cgroup/memory.events",
                    "ulimit -n; ulimit -u",
                ),
                needs="nothing",
            ),
            Fix(
                title="raise it in the shell that starts the job, or load less per rank",
                commands=("ulimit -n 1048576; ulimit -u unlimited",),
                needs="hard limits that allow it",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        runtime, culprit = facts.first(TorchRuntime), ended_by(facts)
        for limit in facts[Limit]:
            if limit.name in ("cpu", "as") and limit.soft is not None:
                yield from self._of_process(limit, limit is culprit)
            elif limit.name == "ports" and limit.left is not None and limit.left < PORTS_FOR_COMFORT:
                stuck = limit.left < PORTS_A_RANK_NEEDS or no_port(facts)
                yield self._too_low(limit, *words(limit), stuck, [PORTS])
            elif limit.name == "nofile" and limit.soft is not None and limit.soft < FILES_FOR_COMFORT:
                yield self._too_low(
                    limit,
                    f"a process may open {limit.soft} files",
                    "torch opens some 50 to start, NCCL two to eight sockets per peer and channel, a DataLoader worker one "
                    "per tensor: `Too many open files`",
                    limit.soft < FILES_TORCH_NEEDS,
                    by_ulimit("n", limit, 4096, "docker run --ulimit nofile=65536:65536 IMAGE"),
                )
            elif limit.name in ("nproc", "pids") and limit.left is not None and limit.left < TASKS_FOR_COMFORT:
                whose = "this user" if limit.name == "nproc" else "this container or cgroup"
                yield self._too_low(
                    limit,
                    f"{whose} may start {max(limit.left, 0)} more threads of {limit.soft}",
                    "each rank starts dozens (OpenMP, Gloo, NCCL, autograd): `pthread_create failed: Resource temporarily "
                    "unavailable`",
                    limit.left < TASKS_A_RANK_NEEDS,
                    by_ulimit("u", limit, (limit.used or 0) + 4096, "docker run --ulimit nproc=65536:65536 IMAGE")
                    if limit.name == "nproc"
                    else [by_cgroup(f"echo max > {limit.source}", "docker run --pids-limit=-1 IMAGE")],
                )
            elif limit.name == "memlock" and _too_little_to_lock(limit):
                yield self._too_low(
                    limit,
                    f"a process may lock {size(limit.soft or 0)} of memory, and {', '.join(limit.needed_by)} need to",
                    "registering memory for RDMA fails: `Call to ibv_reg_mr failed with error Cannot allocate memory`",
                    False,
                    by_ulimit("l", limit, None, "docker run --ulimit memlock=-1 IMAGE"),
                )
        for memory in facts[Memory]:
            if memory.available < MEMORY_TORCH_NEEDS or memory is culprit:
                killed = memory is culprit and runtime is not None
                yield self.finding(
                    f"{size(memory.available)} of memory are left ({memory.source}): one rank takes more",
                    because="the kernel kills a rank (exit code -9, SIGKILL) and the others wait for it",
                    evidence=[memory.evidence(), *([runtime.evidence()] if killed and runtime else [])],
                    fixes=[
                        Fix(title="see what takes it", commands=("ps -eo rss,pid,args --sort=-rss | head",), needs="nothing"),
                        by_cgroup("docker run --memory=32g IMAGE"),
                    ],
                    severity=Severity.ERROR if killed else Severity.WARNING,
                    confidence=Confidence.LIKELY,
                )  # fmt: skip

    def _of_process(self, limit: Limit, culprit: bool) -> Iterator[Finding]:
        least = SECONDS_OF_CPU if limit.name == "cpu" else SPACE_TORCH_NEEDS
        if not culprit and (limit.soft or 0) >= least:
            return
        summary, because = words(limit)
        option = "t" if limit.name == "cpu" else "v"
        yield self._too_low(
            limit,
            summary,
            because,
            culprit or (limit.soft or 0) < SECONDS_OF_AN_IMPORT,
            by_ulimit(option, limit, None, "docker run --ulimit cpu=-1 IMAGE" if limit.name == "cpu" else ""),
        )

    def _too_low(self, limit: Limit, summary: str, because: str, stops: bool, fixes: list[Fix]) -> Finding:
        return self.finding(
            f"{summary} ({limit.source})",
            because=because,
            evidence=[limit.evidence()],
            fixes=fixes,
            severity=Severity.ERROR if stops else Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def _too_little_to_lock(limit: Limit) -> bool:
    return bool(limit.needed_by) and not limit.exempt and limit.soft is not None and limit.soft < MEMLOCK_FOR_RDMA
