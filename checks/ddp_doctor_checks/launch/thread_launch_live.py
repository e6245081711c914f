"""What a running job shows of DDP103 besides two inits in one process: collectives in threads, a launcher in a thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Process, jobs
from ddp_doctor.facts.process import Stack
from ddp_doctor.model import Confidence, Facts, Severity
from ddp_doctor_checks.launch.relaunch_unreached_live import runs_again
from ddp_doctor_checks.launch.thread_launch_script import ranks_of_their_own

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


def launchers_in_threads(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `ThreadLaunch.finding`: ranks that started the others by their command line, off the main thread."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        for rank in view.ranks:
            above = processes.get(rank.subject.process)
            if above is None or rank.thread in (None, above.pid) or not rank.has_stack:
                continue
            started = [
                each
                for each in processes.values()
                if each.subject.host == above.subject.host and each.parent == above.pid and runs_again(each, above)
            ]
            if not started:
                continue
            # of one that was not looked into nobody knows whether it hangs for this
            looked_into = {each.subject.pid for each in view.ranks if each.has_stack}
            seen = looked_into.issuperset(each.pid for each in started)
            yield {
                "summary": f"PID {above.pid} started {len(started)} further rank{'s' * (len(started) > 1)} from thread "
                f"{rank.thread_name!r}, not from its main thread",
                "because": "each of them runs the script again and must reach the same call by itself; what a request, a "
                "message or a button set off happens in the first process only",
                "evidence": [
                    rank.evidence(f"PID {above.pid}: {rank.text()}"),
                    *(
                        each.evidence(f"PID {each.pid}, a child of PID {above.pid}: {each.text()}")
                        for each in started[:4]
                    ),
                ],
                "severity": Severity.WARNING,
                "confidence": Confidence.CERTAIN if seen else Confidence.LIKELY,
                "fixes": [
                    ranks_of_their_own(
                        "put the training into a script, and start that where the thread starts now",
                        rank.world_size or 2,
                    )
                ],
                "ranks": [rank.rank] if rank.rank is not None else [],
            }
