"""What the processes of a running job show: the examination that `attach` and `watch` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.job import Job, JobRank, Process
from ddp_doctor.facts.process import RankThread
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, RankRow, Report, Target
from ddp_doctor.packs import load_packs
from ddp_doctor.probes.job import job_probes


class Examined(NamedTuple):
    """A report, and the facts with their meaning that it was made of."""

    report: Report
    facts: Facts


def examine_running(
    command: str,
    host: Host,
    pids: Iterable[int],
    *,
    every: bool = False,
    stacks: bool = True,
    native: bool = False,
    py_spy: tuple[str, ...] = (),
    selection: Selection | None = None,
    started: float | None = None,
    progress: Callable[[tuple[str, ...]], None] | None = None,
    keep: Callable[[Facts], None] | None = None,
) -> Examined:
    """Every rank of the jobs these processes belong to, or of every job on this node."""
    alive = tuple(pids)
    loaded = load_packs()
    meant: list[Facts] = []

    def kept_rows(facts: Facts) -> list[RankRow]:
        meant.append(facts)
        return rows(facts)

    report = examine(
        command,
        loaded,
        host=host,
        probes=job_probes(alive, every=every, stacks=stacks, native=native, signatures=loaded.signatures, py_spy=py_spy)
        if alive or every
        else (),
        selection=selection,
        describe=target,
        rows=kept_rows,
        examined=lambda facts: bool(facts[JobRank] or (alive and not facts[Process])),
        waiting=lambda facts: not facts[Job] or any(job.hung is not False for job in facts[Job]),
        all_here=all_here,
        started=started,
        progress=progress,
        keep=keep,
    )
    return Examined(report, meant[-1])


def all_here(facts: Facts) -> bool:
    """Whether every rank of every job is one of this node."""
    return bool(facts[Job]) and all(job.world_size is not None and job.complete_here for job in facts[Job])


def target(facts: Facts) -> Target:
    """The job in one line."""
    sizes = {job.world_size for job in facts[Job]}
    launchers = {job.launcher for job in facts[Job]} - {""}
    return Target(
        hosts=tuple(sorted({host for job in facts[Job] for host in job.hosts or (job.subject.host,)})),
        world_size=sizes.pop() if len(sizes) == 1 else None,
        launcher=launchers.pop() if len(launchers) == 1 else None,
    )


def threads_as_ranks(facts: Facts) -> dict[tuple[str, int | None, int | None], list[RankThread]]:
    """Processes in which several threads with ranks of their own stand in the initialisation of the default group."""
    found: dict[tuple[str, int | None, int | None], list[RankThread]] = {}
    for thread in facts[RankThread]:
        if thread.in_init and thread.group == "default" and thread.rank is not None and not thread.ended:
            found.setdefault(thread.subject.process, []).append(thread)
    return {process: threads for process, threads in found.items() if len({each.rank for each in threads}) > 1}


def rows(facts: Facts) -> list[RankRow]:
    """A row per rank, also where ranks are threads of one process, and one per rank that should be here and is not."""
    threads = threads_as_ranks(facts)
    found = [
        RankRow(
            rank=each.rank,
            host=each.subject.host,
            pid=each.subject.pid,
            stage=each.stage.label,
            state=each.state,
            since_s=each.since_s,
            cpu=each.cpu,
            where=each.where,
            call=each.call or ("" if each.doing in ("user-code", "") else each.doing),
            waits_for=each.waits_for,
        )
        for each in facts[JobRank]
        if each.role == "rank" and each.subject.process not in threads
    ]
    found += [thread.row for members in threads.values() for thread in members]
    for job in facts[Job]:
        if job.complete_here and not threads:
            found += [RankRow(rank=rank, host=job.subject.host, state="exited") for rank in job.missing]
    jobs = {each.subject.pid: each.job for each in facts[JobRank]}
    found.sort(key=lambda row: (jobs.get(row.pid, 0), row.rank is None, row.rank or 0))
    return found
