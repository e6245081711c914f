"""What dumps of several processes show of DDP604: one does its own work while another stands in torch.distributed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.process import Stack
from ddp_doctor.interpret.dumps import waiting_and_late
from ddp_doctor.interpret.stack import user_frame
from ddp_doctor.interpret.stage import activity
from ddp_doctor.model import Confidence, Facts, Fix, Severity


def from_dumps(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `SlowRank.finding`; none where the processes themselves were looked at."""
    waiting, late = waiting_and_late(() if facts[JobRank] else facts[Stack])
    if not waiting or not late:
        return
    stacks = [stack for stack, _ in late]
    call = activity(waiting[0]).call
    names = " and ".join(_name(stack) for stack in stacks[:3])
    yield {
        "summary": f"{names} {'is' if len(stacks) == 1 else 'are'} in {user_frame(stacks[0].frames)}, while "
        f"{_name(waiting[0])} waits in {call}",
        "because": "what waits there may wait for a process that has not come so far; that both are ranks of one job, "
        "and that it is not just late, the dumps do not tell",
        "evidence": [stack.evidence() for stack in (*stacks[:4], *waiting[:3])],
        "fixes": [
            Fix(
                title="see whether it still stands there, and what for",
                commands=(f"ddp-doctor attach {stacks[0].subject.pid or 'PID'}   # on its node",),
                needs="nothing",
            )
        ],
        "severity": Severity.WARNING,
        "confidence": Confidence.POSSIBLE,
        "ranks": [stack.subject.rank for stack in stacks if stack.subject.rank is not None],
    }


def _name(stack: Stack) -> str:
    if stack.subject.rank is not None:
        return f"rank {stack.subject.rank}"
    return (
        f"PID {stack.subject.pid}"
        if stack.subject.pid
        else f"the process of {stack.source.rpartition(' thread ')[0] or stack.source}"
    )
