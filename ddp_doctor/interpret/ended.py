"""Where the ranks' tracebacks end, and what it tells that they do not end at the same place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.facts.process import Stack, StoreWait
from ddp_doctor.interpret.stack import rank_thread, user_frame
from ddp_doctor.model import Stage

_CALLS = frozenset(
    {
        "barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce", "gather", "scatter", "all_gather", "send", "recv",
        "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
        "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
    }
)  # fmt: skip
_INSIDE = {
    "_verify_param_shape_across_processes": "DistributedDataParallel()",
    "_sync_module_states": "DistributedDataParallel()",
    "_engine_run_backward": "backward",
    "_sync_buffers": "forward",
}
"""What torch's own frames say of the user's call that is a collective in disguise."""
_OF_DEFAULT_GROUP = re.compile(r"/default_pg/0//(?:cpu|cuda)//\d+/(\d+)$")


def collective(stack: Stack) -> str:
    """The collective that a thread stood in, as the user called it; empty outside of one."""
    for frame in reversed(stack.frames):
        name = frame.function.rsplit(".", 1)[-1]
        if name in _INSIDE:
            return _INSIDE[name]
        if name in _CALLS and "torch/distributed/" in frame.file:
            return name
    return ""


def ended_apart(stacks: Sequence[Stack], waits: Sequence[StoreWait]) -> list[LogEvent]:
    """Events for ranks that ended in different collectives, or some in init and others behind it."""
    last = {stack.process: stack for stack in stacks if stack.ended and collective(stack)}
    found = []
    if len(last) > 1 and len({collective(stack) for stack in last.values()}) > 1:
        told = "; ".join(
            f"{_who(stack)} in {collective(stack)} ({user_frame(stack.frames)})" for stack in last.values()
        )
        found.append(_event(next(iter(last.values())), "ended-apart", ("DDP601", "DDP603", "DDP604"), told))
    behind = {stack.process for stack in last.values() if rank_thread(stack) is None}
    for wait in waits:
        keys = [key[1] for each in wait.keys if (key := _OF_DEFAULT_GROUP.search(each))]
        if behind - {wait.process} and wait.process not in behind and keys:
            told = f"{wait.process} waits for rank {keys[0]} to make the group that others are in already"
            found.append(_event(wait, "group-of-others", ("DDP117", "DDP116", "DDP606"), told, 3.0))
            break
    return found


def _event(fact: Stack | StoreWait, name: str, leads: tuple[str, ...], told: str, weight: float = 1.6) -> LogEvent:
    return LogEvent(
        subject=fact.subject,
        source=fact.source,
        signature=name,
        sort="ambiguous",
        leads=leads,
        weight=weight,
        summary=told[:300],
        line=told[:300],
        stage=Stage.FIRST_COLLECTIVE,
    )


def _who(stack: Stack) -> str:
    return f"rank {stack.subject.rank}" if stack.subject.rank is not None else stack.process
