"""Whether a limit or lack of memory explains that torch could not be imported, or a trial rank found no port."""

from __future__ import annotations

import re

from ddp_doctor.facts.host import Limit, Memory
from ddp_doctor.facts.software import TorchRuntime, TrialRank
from ddp_doctor.model import Facts

MEMORY_OF_AN_IMPORT = 1 << 30
"""Importing a CUDA build takes up to about 700 MiB."""
FEW_TASKS = 32
FEW_FILES = 64
NO_MEMORY = re.compile(
    r"failed to map segment|annot allocate memory|MemoryError|bad_alloc|SIG(KILL|ABRT|SEGV|BUS|TRAP)"
)
NO_TASK = re.compile(
    r"can't start new thread|unable to start watchdog thread|pthread_create"
    r"|Resource temporarily unavailable|BlockingIOError|SIGABRT"
)
NO_FILE = re.compile(r"Too many open files")
NO_PORT = re.compile(r"already in use|EADDRINUSE|annot assign requested address|tim(e|ed) ?out", re.IGNORECASE)


def ended_by(facts: Facts) -> Limit | Memory | None:
    """The limit, or the memory left, that this failed import of torch speaks of; None where nothing was seen to lack."""
    runtime = facts.first(TorchRuntime)
    if runtime is None or runtime.outcome not in ("raised", "died"):
        return None
    for limit in facts[Limit]:
        if limit.soft is not None and _fits(limit, runtime.error):
            return limit
    if "SIGKILL" in runtime.error or "llocate memory" in runtime.error or "MemoryError" in runtime.error:
        return next((memory for memory in facts[Memory] if memory.available < MEMORY_OF_AN_IMPORT), None)
    return None


def _fits(limit: Limit, error: str) -> bool:
    if limit.name == "cpu":
        # the soft limit sends SIGXCPU, the hard one SIGKILL
        return "SIGXCPU" in error or ("SIGKILL" in error and (limit.soft or 0) < 60)
    if limit.name == "as":
        return bool(NO_MEMORY.search(error)) and "SIGKILL" not in error
    if limit.name in ("nproc", "pids"):
        return bool(NO_TASK.search(error)) and limit.left is not None and limit.left < FEW_TASKS
    return limit.name == "nofile" and bool(NO_FILE.search(error)) and (limit.soft or 0) < FEW_FILES


def no_port(facts: Facts) -> bool:
    """Whether trial ranks failed as they do where the kernel has no port to give."""
    return any(NO_PORT.search(rank.error) for rank in facts[TrialRank] if rank.outcome in ("failed", "timeout"))
