"""Dumps of several processes: which of them have not come to torch.distributed, while another one stands in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ddp_doctor.facts.process import Stack
from ddp_doctor.interpret.stage import Activity, activity, user_frames

OWN_WORK = ("user-code", "importing", "data", "import-lock")
DATA_WORKER = "torch/utils/data/_utils/worker.py"


def waiting_and_late(stacks: Iterable[Stack]) -> tuple[list[Stack], list[tuple[Stack, Activity]]]:
    """A thread of each process that stands in torch.distributed, and the main thread of each that does its own work.

    What ended, a launcher and data workers are neither.
    """
    processes: dict[tuple[str, int | None], list[Stack]] = defaultdict(list)
    for stack in stacks:
        if not stack.ended and stack.frames:
            processes[stack.process or stack.source.rpartition(" thread ")[0], stack.subject.pid].append(stack)
    waiting: list[Stack] = []
    late: list[tuple[Stack, Activity]] = []
    for members in processes.values():
        seen = [(stack, activity(stack)) for stack in members]
        inside = [stack for stack, what in seen if what.distributed and what.doing != "waiting-for-nodes"]
        if inside:
            waiting.append(inside[0])
            continue
        main, doing = next((pair for pair in seen if _is_main(pair[0])), seen[0])
        works = doing.doing in OWN_WORK and bool(user_frames(main.frames))
        if works and not any(frame.file.endswith(DATA_WORKER) for frame in main.frames):
            late.append((main, doing))
    return waiting, late


def _is_main(stack: Stack) -> bool:
    return stack.thread_name == "MainThread" or stack.frames[-1].function == "<module>"
