"""`triage`: what saved files show of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.log import NcclProgress, RankEnd
from ddp_doctor.facts.process import RankThread, Stack
from ddp_doctor.facts.report import Examined, ReportedRank
from ddp_doctor.facts.script import ScriptRead
from ddp_doctor.host import Host
from ddp_doctor.interpret.dumps import waiting_and_late
from ddp_doctor.interpret.stack import user_frame
from ddp_doctor.interpret.stage import activity
from ddp_doctor.model import Facts, RankRow, Redacted, Report, Stage, Target, Wait
from ddp_doctor.packs import load_packs
from ddp_doctor.probes.scripts import scripts_probe
from ddp_doctor.readers.log import LogReader
from ddp_doctor.readers.many import read_paths


def examine_files(out: Output, paths: Sequence[str], selection: Selection | None, timeout: float) -> Report:
    """What these logs, dumps, folders and archives show; a Python file is read as the job's script."""
    loaded = load_packs()
    scripts = [path for path in paths if path.endswith(".py")]
    paths = [path for path in paths if path not in scripts]
    stdin = sys.stdin.buffer if "-" in paths and sys.stdin is not None else None
    read = read_paths(paths, LogReader(loaded.signatures()), stdin=stdin, seconds=timeout, progress=out.reading)
    for problem in read.problems:
        print(f"ddp-doctor: cannot read {problem.source}: {problem.reason}", file=sys.stderr)
    # an empty file in a folder of logs is nothing to speak of
    empty = [name for name in read.empty if not read.files or name in (*paths, "stdin")]
    if empty:
        print(f"ddp-doctor: {_are_empty(empty)}", file=sys.stderr)
    examined = [fact for fact in read.facts if isinstance(fact, Examined)]
    # what `run` or `lint` saw is no job that somebody found hung
    calm = bool(examined) and len(examined) >= read.files and {each.command for each in examined} <= {"run", "lint"}
    report = examine(
        "triage",
        loaded,
        known=Facts(read.facts, read.absents, read.looked_for),
        host=interrupts_end(Host(timeout, probe_seconds=timeout)) if scripts else None,
        probes=(scripts_probe(scripts),) if scripts else (),
        selection=selection,
        describe=_target,
        rows=_rows,
        examined=lambda facts: read.files > 0 or bool(facts[ScriptRead]),
        waiting=lambda facts: not calm,
        started=out.started,
        keep=out.keep,
    )
    counts = [each.redacted for each in examined]
    return msgspec.structs.replace(
        report,
        redacted=Redacted(
            hosts=sum(each.hosts for each in counts),
            users=sum(each.users for each in counts),
            secrets=sum(each.secrets for each in counts),
        ),
    )


def _are_empty(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is empty"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{len(names)} files are empty: {', '.join(names[:8])}{more}"


def _target(facts: Facts) -> Target:
    told = facts[Examined]
    if len(told) == 1:
        return told[0].target
    hosts = {host for each in told for host in each.target.hosts}
    hosts |= {fact.subject.host for fact in facts if fact.subject.host}
    sizes = {thread.world_size for thread in facts[RankThread] if thread.world_size}
    sizes |= {process.ranks for process in facts[NcclProgress] if process.ranks}
    versions = {process.version for process in facts[NcclProgress] if process.version}
    return Target(
        hosts=tuple(sorted(hosts)),
        world_size=sizes.pop() if len(sizes) == 1 else None,
        nccl=versions.pop() if len(versions) == 1 else None,
    )


def _rows(facts: Facts) -> list[RankRow]:
    reported = sorted((each.row for each in facts[ReportedRank]), key=lambda row: (row.rank is None, row.rank or 0))
    if reported:
        return reported
    rows = [thread.row for thread in facts[RankThread]]
    rows += _rows_of_logs(facts)
    rows += _rows_of_dumps(facts)
    rows.sort(key=lambda row: (row.rank is None, row.rank or 0))
    return rows if facts[Stack] or rows else []


def _rows_of_dumps(facts: Facts) -> list[RankRow]:
    """A row per process beyond those in init, once one of them stands in torch.distributed."""
    waiting, late = waiting_and_late(facts[Stack])
    in_init = {(thread.process, thread.subject.process) for thread in facts[RankThread]}
    beyond = [(stack, activity(stack)) for stack in waiting if (stack.process, stack.subject.process) not in in_init]
    return [
        RankRow(
            rank=stack.subject.rank,
            host=stack.subject.host,
            pid=stack.subject.pid,
            stage=seen.at_least.label,
            state="running" if stack.active and (stack, seen) in late else "waiting",
            where=user_frame(stack.frames),
            call=seen.call,
        )
        for stack, seen in (*beyond, *(late if waiting else ()))
    ]


def _rows_of_logs(facts: Facts) -> list[RankRow]:
    """A row per process that NCCL's lines tell of, and per rank that only its end tells of."""
    ended = {(end.subject.rank, end.subject.pid) for end in facts[RankEnd]}
    pids = {pid for _, pid in ended if pid is not None}
    ranks = {rank for rank, _ in ended if rank is not None}
    rows = [
        RankRow(
            rank=process.rank if process.rank is not None else process.subject.rank,
            host=process.subject.host,
            pid=process.subject.pid,
            stage=process.stage.label,
            state="exited" if process.subject.pid in pids or process.subject.rank in ranks else "running",
            where=process.source,
            call="" if process.complete else "ncclCommInitRank",
            waits_for=tuple(Wait(peer=peer) for peer in process.peers[:8]),
        )
        for process in facts[NcclProgress]
        if process.rank is not None or process.subject.pid is not None
    ]
    told = {row.rank for row in rows} | {thread.rank for thread in facts[RankThread]}
    rows += [
        RankRow(
            rank=end.subject.rank,
            host=end.subject.host,
            pid=end.subject.pid,
            stage=Stage.PYTHON.label,
            state="exited",
            where=end.source,
            call=end.text(),
        )
        for end in facts[RankEnd]
        if end.subject.rank is not None and end.subject.rank not in told
    ]
    return rows
