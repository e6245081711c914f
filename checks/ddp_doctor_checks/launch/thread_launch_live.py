"""What a running job shows of DDP103 after init: threads of one process that stand in collectives of the default group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import jobs
from ddp_doctor.facts.process import Stack
from ddp_doctor.model import Confidence, Facts

COLLECTIVES = ("all_reduce", "barrier", "broadcast", "all_gather", "_verify_param_shape_across_processes")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `ThreadLaunch.finding`: lazy backends return from both inits and hang in the first collective."""
    members = {rank.subject.process: view for view in jobs(facts) for rank in view.ranks}
    threads: dict[object, list[Stack]] = defaultdict(list)
    for stack in facts[Stack]:
        names = {frame.function.rsplit(".", 1)[-1] for frame in stack.frames if "torch/distributed/" in frame.file}
        if names.intersection(COLLECTIVES) and "new_group" not in names:
            threads[stack.subject.process].append(stack)
    for process, stacks in threads.items():
        view = members.get(process)  # type: ignore[call-overload]
        if view is None or len(stacks) < 2 or len(view.ranks) > 1:
            continue
        # two threads of a lone process in one collective each: nobody is left to answer them
        if any(stack.moved for stack in stacks):
            continue
        pid = stacks[0].subject.pid
        yield {
            "summary": f"{len(stacks)} threads of one process, PID {pid}, wait in collectives as if they were ranks",
            "because": "torch.distributed keeps one default group per process: the thread that came second replaced the "
            "first one's group, and no other process is there to take part",
            "evidence": [stack.evidence() for stack in stacks],
            "confidence": Confidence.LIKELY,
            "ranks": range(len(stacks)),
        }
