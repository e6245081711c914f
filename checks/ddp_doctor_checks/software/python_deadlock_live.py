"""What a running job shows of DDP506: a rank that waits for a lock of Python's which nobody will release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ddp_doctor.facts.job import JobRank, JobView, Process, jobs, named
from ddp_doctor.facts.process import Stack
from ddp_doctor.interpret.family import script_of
from ddp_doctor.interpret.stage import LIBRARY, user_frames
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `PythonDeadlock.finding`, one set per kind of deadlock and job."""
    processes = {process.subject.process: process for process in facts[Process]}
    stacks: dict[object, list[Stack]] = defaultdict(list)
    for stack in facts[Stack]:
        stacks[stack.subject.process].append(stack)
    for view in jobs(facts):
        forked: list[JobRank] = []
        for rank in view.ranks:
            process, mine = processes.get(rank.subject.process), stacks[rank.subject.process]
            if process is None or not mine or rank.state in ("stopped", "exited"):
                continue
            hog = next((stack for stack in mine if stack.owns_gil and stack.active is False), None)
            if hog is not None and (rank.cpu or 0.0) < 0.2:
                yield _gil(rank, hog, sure=rank in view.culprits())
            elif rank.doing == "import-lock":
                yield _import(rank, mine, sure=rank in view.culprits())
            elif _at_a_lock(rank, process) and _was_forked(process, processes.values()):
                forked.append(rank)
            elif _at_a_lock(rank, process) and rank in view.culprits():
                yield from _two_locks(rank, mine, process)
        if forked:
            yield _fork(forked, view)


def _at_a_lock(rank: JobRank, process: Process) -> bool:
    """The innermost Python frame is the script's own and the thread sleeps in a futex: a lock, or a library's wait."""
    innermost = (
        bool(rank.places) and not LIBRARY.search(rank.file) and rank.functions[:1] == (rank.where.split(" ")[-1],)
    )
    return (
        rank.doing == "user-code"
        and rank.state == "waiting"
        and innermost
        and bool(process.tasks)
        and "futex" in process.tasks[0].wchan
    )


def _was_forked(process: Process, everyone: Sequence[Process] | Any) -> bool:
    above = next((other for other in everyone if other.pid == process.parent), None)
    return above is not None and script_of(above) == script_of(process) and above.set_at_start == process.set_at_start


def _gil(rank: JobRank, hog: Stack, sure: bool) -> dict[str, Any]:
    where = user_frames(hog.frames)
    place = f"{where[0].file.rsplit('/', 1)[-1]}:{where[0].line} {where[0].function}" if where else hog.text()
    return {
        "summary": f"a C call of {rank.name} at {place} holds the GIL and does not return",
        "because": "no other Python thread of this process runs meanwhile, so the rank never comes to the call that the others "
        "wait in",
        "evidence": [hog.evidence(f"owns the GIL and is idle: {hog.text()}"), rank.evidence()],
        "fixes": [
            Fix(
                title="let the extension release the GIL around what blocks (ctypes: CDLL, not PyDLL)",
                commands=("library = ctypes.CDLL(path)",),
                needs="code change, job restart",
            )
        ],
        "confidence": Confidence.CERTAIN if sure else Confidence.LIKELY,
        "ranks": [rank.rank] if rank.rank is not None else [],
    }


def _import(rank: JobRank, mine: Sequence[Stack], sure: bool) -> dict[str, Any]:
    other = next((stack for stack in mine if stack.subject.thread != rank.thread and user_frames(stack.frames)), None)
    return {
        "summary": f"{rank.name} is deadlocked in an import: a thread waits for a module that is still being imported",
        "because": "the import waits for that thread to end, and the thread for the import; init is never reached",
        "evidence": [rank.evidence(), *([other.evidence()] if other else [])],
        "fixes": [
            Fix(
                title=f"start the thread from a function that runs after the imports, not at import time ({rank.where})",
                commands=('if __name__ == "__main__":', "    start_threads()"),
                needs="code change, job restart",
            )
        ],
        "confidence": Confidence.CERTAIN if sure else Confidence.LIKELY,
        "ranks": [rank.rank] if rank.rank is not None else [],
    }


def _two_locks(rank: JobRank, mine: Sequence[Stack], process: Process) -> Iterator[dict[str, Any]]:
    futex = {task.id for task in process.tasks if "futex" in task.wchan}
    stuck = [
        stack
        for stack in mine
        if stack.subject.thread in futex and stack.frames and not LIBRARY.search(stack.frames[0].file)
    ]
    if len(stuck) < 2:
        return
    yield {
        "summary": f"{len(stuck)} threads of {rank.name} wait for locks of Python's, and none of them runs",
        "because": "each holds what another waits for; the rank never comes to the call that the others wait in",
        "evidence": [stack.evidence() for stack in stuck[:4]],
        "fixes": [
            Fix(
                title="take the locks in one order everywhere, or hold one at a time",
                commands=("with first_lock:", "    with second_lock:  # the same order in every thread", "        ..."),
                needs="code change, job restart",
            )
        ],
        "confidence": Confidence.LIKELY,
        "ranks": [rank.rank] if rank.rank is not None else [],
    }


def _fork(forked: list[JobRank], view: JobView) -> dict[str, Any]:
    one = len(forked) == 1
    size = view.job.world_size or len(view.ranks)
    return {
        "summary": f"{named(forked)} {'was' if one else 'were'} forked while another thread held a lock, and "
        f"{'waits' if one else 'wait'} for it at {forked[0].where}",
        "because": "fork copies the lock as it is and not the thread that would release it (a Python lock, or OpenMP's after "
        "its threads have started)",
        "evidence": [rank.evidence(f"PID {rank.subject.pid}: {rank.text()}") for rank in forked[:4]],
        "fixes": [
            Fix(
                title="spawn the ranks instead of forking them",
                commands=(
                    'if __name__ == "__main__":',
                    f'    mp.start_processes(worker, nprocs={size}, start_method="spawn")',
                ),
                needs="code change, job restart",
            )
        ],
        "confidence": Confidence.LIKELY,
        "ranks": [rank.rank for rank in forked if rank.rank is not None],
    }
