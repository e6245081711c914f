"""`attach`: what the processes of a running job show."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.job import Job, JobRank, Process
from ddp_doctor.facts.process import RankThread
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, RankRow, Report, Target
from ddp_doctor.packs import load_packs
from ddp_doctor.probes.job import job_probes


def examine_job(
    out: Output,
    pids: Sequence[int],
    selection: Selection,
    timeout: float,
    probe_timeout: float,
    *,
    every: bool,
    stacks: bool,
    native: bool,
) -> Report:
    """Every rank of the jobs these processes belong to, or of every job on this node."""
    host = interrupts_end(Host(timeout, probe_seconds=probe_timeout))
    alive = [pid for pid in dict.fromkeys(pids) if host.kernel(f"/proc/{pid}/stat") is not None]
    for pid in sorted(set(pids) - set(alive)):
        print(f"ddp-doctor: there is no process {pid}", file=sys.stderr)
    loaded = load_packs()
    report = examine(
        "attach",
        loaded,
        host=host,
        probes=job_probes(alive, every=every, stacks=stacks, native=native, signatures=loaded.signatures)
        if alive or every
        else (),
        selection=selection,
        describe=target,
        rows=rows,
        examined=lambda facts: bool(facts[JobRank] or (alive and not facts[Process])),
        waiting=lambda facts: not facts[Job] or any(job.hung is not False for job in facts[Job]),
        started=out.started,
        progress=out.waiting,
        keep=out.keep,
    )
    if report.verdict.status == "nothing" and (alive or every):
        named = (
            f"PID {', '.join(map(str, alive))} is no rank process, nor is one below it"
            if alive
            else "no rank process here"
        )
        print(f"ddp-doctor: {named}; `pgrep -af train.py` lists the processes of a script", file=sys.stderr)
    return report


def target(facts: Facts) -> Target:
    """The job in one line."""
    sizes = {job.world_size for job in facts[Job]}
    launchers = {job.launcher for job in facts[Job]} - {""}
    return Target(
        hosts=tuple(sorted({job.subject.host for job in facts[Job]})),
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
    for members in threads.values():
        found += [
            RankRow(
                rank=thread.rank,
                host=thread.subject.host,
                pid=thread.subject.pid,
                stage=thread.at_least.label,
                state="waiting",
                where=thread.where,
                call=thread.call,
            )
            for thread in members
        ]
    for job in facts[Job]:
        if job.complete_here and not threads:
            found += [RankRow(rank=rank, host=job.subject.host, state="exited") for rank in job.missing]
    jobs = {each.subject.pid: each.job for each in facts[JobRank]}
    found.sort(key=lambda row: (jobs.get(row.pid, 0), row.rank is None, row.rank or 0))
    return found
