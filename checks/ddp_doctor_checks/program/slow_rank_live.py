"""What a running job shows of DDP604: a rank that the others wait for and that is busy, or idle, somewhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import OWN_CODE, Child, JobRank, JobView, Process, jobs, named
from ddp_doctor.model import Confidence, Facts, Fix, Severity

ELSEWHERE = (*OWN_CODE, "import-lock")
STARTING_SECONDS = 45.0
PATIENT_SECONDS = 150.0
"""Nodes of one job start up to two minutes apart."""


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `SlowRank.finding`, one set per job."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        late = [
            rank for rank in view.culprits() if rank.doing in ELSEWHERE and rank.has_stack and rank.state != "exited"
        ]
        if late:
            first = late[0].subject.process
            children = [child for child in facts[Child] if child.subject.process == first and not child.servant]
            yield _finding(view, late, processes.get(first), children)
        elif _all_wait_for_data(view):
            yield _starving(view)


def _all_wait_for_data(view: JobView) -> bool:
    return view.job.hung is None and bool(view.ranks) and all(rank.doing == "data" for rank in view.ranks)


def _starving(view: JobView) -> dict[str, Any]:
    workers = [each for each in view.others if each.role == "data-worker"]
    idle = "and none of them worked while they were looked at" if workers else "and no such worker is seen here"
    first = (workers or list(view.ranks))[0].subject.pid
    return {
        "summary": f"all {len(view.ranks)} ranks wait for the workers of their DataLoaders",
        "because": f"no rank waits for another: each waits for its own workers, {idle}",
        "evidence": [
            *(rank.evidence() for rank in view.ranks[:3]),
            *(worker.evidence(f"data worker, {worker.state}: {worker.where}") for worker in workers[:3]),
        ],
        "fixes": [
            Fix(
                title="see whether a worker reads slowly or is stuck, in a lock or a file system",
                commands=(f"py-spy dump --pid {first}",),
                needs="nothing",
            )
        ],
        "severity": Severity.WARNING,
        "confidence": Confidence.POSSIBLE,
        "ranks": [rank.rank for rank in view.ranks if rank.rank is not None],
    }


def _finding(view: JobView, late: list[JobRank], process: Process | None, children: list[Child]) -> dict[str, Any]:
    first = late[0]
    waiting = [rank for rank in view.waiting if {wait.rank for wait in rank.waits_for} & {each.rank for each in late}]
    call = next((rank.call for rank in waiting if rank.call), "init_process_group")
    for_child = process is not None and _waits_for_child(first, process)
    started = _waited_for(children) if for_child else []
    idle = (
        f"its child {' or '.join(child.words for child in started[:3])}"
        if started
        else "a process that it started"
        if for_child
        else "something else"
    )
    doing = "is working, not stuck" if first.state == "running" else f"uses no CPU: it waits for {idle}"
    verb = "has" if len(late) == 1 else "have"
    where = first.where or "its own code"
    return {
        "summary": f"{named(late)} {verb} not reached {call}; {'it is' if len(late) == 1 else 'they are'} still in {where}",
        "because": f"{named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} there until the timeout; {first.name} {doing}",
        "evidence": [
            *(rank.evidence() for rank in late[:4]),
            *(child.evidence() for child in started[:3]),
            *(rank.evidence() for rank in waiting[:3]),
        ],
        "fixes": [
            *([_look_at_child(first, started)] if for_child else []),
            *_fixes(first, call, next((rank.backend for rank in waiting if rank.backend), "nccl")),
        ],
        "severity": _severity(first, waiting),
        "confidence": Confidence.CERTAIN if all(_at_work(rank, process) for rank in late) else Confidence.LIKELY,
        "ranks": [rank.rank for rank in late if rank.rank is not None],
    }


def _at_work(rank: JobRank, process: Process | None) -> bool:
    """Whether it plainly has not come to init yet: its own code works or sleeps. One that waits may be stuck."""
    sleeps = (
        process is not None
        and process.subject.process == rank.subject.process
        and any(task.id == rank.thread and "nanosleep" in task.wchan for task in process.tasks)
    )
    own = rank.doing == "user-code" and not rank.beyond_init and rank.rank is not None
    return own and (rank.state == "running" or (sleeps and rank.state == "waiting"))


def _waits_for_child(rank: JobRank, process: Process) -> bool:
    """Whether it waits for a process below it to end: in the kernel's `do_wait`, or for its output."""
    task = next((task for task in process.tasks if task.id == rank.thread), None)
    names = {name.rpartition(".")[2] for name in rank.functions[:3]}
    return rank.state == "waiting" and ((task is not None and task.wchan == "do_wait") or "_communicate" in names)


def _waited_for(children: list[Child]) -> list[Child]:
    """The child that is waited for by its PID, else all that it may be."""
    return [child for child in children if child.waited_for] or children


def _look_at_child(rank: JobRank, started: list[Child]) -> Fix:
    if len(started) == 1:
        return Fix(
            title=f"see why {started[0].words} does not end: what it and those below it do, and their open files",
            commands=(
                f"ps -o pid,stat,wchan:20,etime,args --pid {started[0].pid} --ppid {started[0].pid}",
                f"ls -l /proc/{started[0].pid}/fd",
            ),
            needs="nothing",
        )
    return Fix(
        title="see which process it waits for, and why that one does not end",
        commands=(f"ps --ppid {rank.subject.pid} -o pid,stat,etime,args",),
        needs="nothing",
    )


def _severity(late: JobRank, waiting: list[JobRank]) -> Severity:
    """A rank that works is late, not hung: an error only where the others have waited for long in init."""
    if late.doing == "importing" and late.state == "running" and (late.since_s or 0.0) < STARTING_SECONDS:
        return Severity.NOTE
    patience = max((rank.since_s or 0.0 for rank in waiting), default=0.0)
    if late.state == "running" and (late.beyond_init or patience < PATIENT_SECONDS):
        return Severity.WARNING
    return Severity.ERROR


def _fixes(late: JobRank, call: str, backend: str) -> list[Fix]:
    if late.beyond_init:
        return [
            Fix(
                title=f"if the work at {late.where} is meant to take this long, give the others more time",
                commands=("dist.init_process_group(..., timeout=timedelta(hours=2))",),
                needs="code change, job restart",
            ),
            Fix(
                title=f"if it never comes to {call}, see what it does next",
                commands=(f"py-spy dump --pid {late.subject.pid}",),
                needs="nothing",
            ),
        ]
    return [
        Fix(
            title="call init_process_group first, then prepare data on one rank while the others wait in a barrier",
            commands=(
                f'dist.init_process_group("{backend}", timeout=timedelta(hours=2))',
                "if dist.get_rank() == 0:",
                "    prepare_data()",
                "dist.barrier()",
            ),
            needs="code change, job restart",
        ),
        Fix(
            title="or see what it does now, and do that before the job is started",
            commands=(f"py-spy dump --pid {late.subject.pid}",),
            needs="nothing",
        ),
    ]
