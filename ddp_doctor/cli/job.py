"""`attach` and `triage`: what running processes or saved files show of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.process import RankThread, Stack
from ddp_doctor.host import Host
from ddp_doctor.model import Fact, Facts, RankRow, Report, Target, Wait
from ddp_doctor.packs import load_packs
from ddp_doctor.probes.stacks import stacks_probe
from ddp_doctor.readers.job_log import read_log
from ddp_doctor.readers.pyspy_dump import looks_like_dump, read_dump

MOST_BYTES = 64 << 20


def examine_processes(
    out: Output, pids: Sequence[int], selection: Selection, timeout: float, probe_timeout: float
) -> Report:
    """What the stacks of these processes show."""
    host = interrupts_end(Host(timeout, probe_seconds=probe_timeout))
    alive = [pid for pid in pids if host.kernel(f"/proc/{pid}/stat") is not None]
    for pid in sorted(set(pids) - set(alive)):
        print(f"ddp-doctor: there is no process {pid}", file=sys.stderr)
    return examine(
        "attach",
        load_packs(),
        host=host,
        probes=(stacks_probe(alive),) if alive else (),
        selection=selection,
        describe=_target,
        rows=_rows,
        examined=lambda facts: bool(alive),
        waiting=True,
        started=out.started,
        progress=out.waiting,
    )


def examine_files(out: Output, paths: Sequence[str], selection: Selection, timeout: float) -> Report:
    """What these logs and dumps show."""
    facts: list[Fact] = []
    read_any = False
    for path in paths:
        text = _text(path, timeout)
        if text is None:
            continue
        read_any = read_any or bool(text.strip())
        source = "stdin" if path == "-" else path
        if looks_like_dump(text):
            try:
                facts += read_dump(text, source)
                continue
            except ValueError as error:
                print(f"ddp-doctor: {source}: {error}; read as a log", file=sys.stderr)
        facts += read_log(text, source)
    return examine(
        "triage",
        load_packs(),
        known=Facts(facts),
        selection=selection,
        describe=_target,
        rows=_rows,
        examined=lambda facts: read_any,
        waiting=True,
        started=out.started,
    )


def _text(path: str, timeout: float) -> str | None:
    if path == "-":
        return sys.stdin.read(MOST_BYTES)
    host = Host(timeout)
    text = host.read(path, limit=MOST_BYTES, seconds=timeout)[path]
    if text is None:
        print(f"ddp-doctor: cannot read {path}", file=sys.stderr)
    return text


def _target(facts: Facts) -> Target:
    hosts = {fact.subject.host for fact in facts if fact.subject.host}
    sizes = {thread.world_size for thread in facts[RankThread] if thread.world_size}
    return Target(hosts=tuple(sorted(hosts)), world_size=sizes.pop() if len(sizes) == 1 else None)


def _rows(facts: Facts) -> list[RankRow]:
    rows = [
        RankRow(
            rank=thread.rank,
            host=thread.subject.host,
            pid=thread.subject.pid,
            stage=thread.at_least.label,
            state="exited" if thread.ended else "waiting",
            where=thread.where,
            call=thread.call,
            waits_for=(Wait(key=thread.waits_for),) if thread.waits_for else (),
        )
        for thread in facts[RankThread]
    ]
    rows.sort(key=lambda row: (row.rank is None, row.rank or 0))
    return rows if facts[Stack] or rows else []
