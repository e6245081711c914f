"""The corridor every command goes through: collect, interpret, judge, diagnose, and at most one more round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

import ddp_doctor
from ddp_doctor.collect import Collected, Probe, closure, collect, wanted_kinds
from ddp_doctor.diagnosis import Diagnosis, diagnose
from ddp_doctor.host import Host
from ddp_doctor.interpret import Interpreter, interpret, interpreters, raw_kinds
from ddp_doctor.judge import judge
from ddp_doctor.model import (
    Check,
    Facts,
    GpuPair,
    Ignored,
    LeftBehind,
    ProbeRun,
    RankRow,
    Report,
    Separator,
    Target,
    Tool,
)
from ddp_doctor.packs import Loaded, pack_failed


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which checks run; each entry is an id, a prefix of ids such as `DDP2`, or a name."""

    select: tuple[str, ...] = ()
    ignore: dict[str, str] = {}
    """Entry -> the user's reason."""

    def split(self, checks: Iterable[Check]) -> tuple[tuple[Check, ...], tuple[Ignored, ...]]:
        """The checks to run and those the user ignored."""
        kept, ignored = [], []
        for check in checks:
            if self.select and not any(_names(entry, check) for entry in self.select):
                continue
            reason = next((reason for entry, reason in self.ignore.items() if _names(entry, check)), None)
            if reason is None:
                kept.append(check)
            else:
                ignored.append(Ignored(id=check.id, reason=reason))
        return tuple(kept), tuple(ignored)


def _names(entry: str, check: Check) -> bool:
    return check.name == entry.lower() or check.id.startswith(entry.upper())


def examine(
    command: str,
    loaded: Loaded,
    *,
    host: Host | None = None,
    probes: Sequence[Probe] = (),
    known: Facts | None = None,
    selection: Selection | None = None,
    describe: Callable[[Facts], Target] | None = None,
    rows: Callable[[Facts], Sequence[RankRow]] | None = None,
    pairs: Callable[[Facts], Iterable[GpuPair]] = lambda facts: (),
    examined: Callable[[Facts], bool] = lambda facts: True,
    waiting: Callable[[Facts], bool] = lambda facts: False,
    all_here: Callable[[Facts], bool] = lambda facts: False,
    progress: Callable[[tuple[str, ...]], None] | None = None,
    started: float | None = None,
    keep: Callable[[Facts], None] | None = None,
    interrupted: str = "",
) -> Report:
    """Examine what the probes and the known facts show.

    `known` are facts from readers (a log, a dump, a script); `probes` need a `host`. `examined` says whether the
    facts show anything at all. `waiting` says of them that
    the subject is a job somebody found hung, so that finding nothing is not health, and `all_here` that no other node
    has to do with it. `progress` is called with the names
    of the probes that are still out. `started` is the monotonic time the call began, for the report. `keep` is given
    the facts as they were observed, before anything was concluded from them. `interrupted` is how an examination ended
    early whose facts are `known`.
    """
    started = time.monotonic() if started is None else started
    checks, ignored = (selection or Selection()).split(loaded.checks())
    facts = known or Facts()
    runs: tuple[ProbeRun, ...] = ()
    every = (*probes, *loaded.pack.probes) if host is not None else ()
    meanings = (*interpreters(), *loaded.pack.interpreters)
    chosen = _wanted(every, checks, meanings)
    separators = [each for each in loaded.pack.separators if not _repeats(each, command)]
    diagnosis = None
    while True:
        if host is not None and chosen:
            collected = collect(host, chosen, facts, progress)
            facts, runs = collected.facts, (*runs, *collected.runs)
        meant = interpret(facts, meanings)
        judgements = judge(checks, meant)
        ranks = tuple(rows(meant)) if rows else ()
        diagnosis_before, diagnosis = (
            diagnosis,
            diagnose(
                judgements,
                ranks,
                [each for each in separators if not (all_here(meant) and _elsewhere(each))],
                examined=examined(meant),
                waiting=waiting(meant),
                interrupted=_cut_short(host, runs)
                if host is not None
                else interrupted and f"{interrupted} before the end",
            ),
        )
        if diagnosis_before is not None or host is None or host.interrupted:
            break
        chosen = _separating(every, diagnosis, {run.name for run in runs})
        if not chosen or not host.deadline:
            break
    if host is not None:
        host.close()
    if keep is not None:
        keep(facts)
    outcomes = tuple(judgement.outcome for judgement in judgements)
    areas = (headline.area(meant, outcomes) for headline in loaded.pack.headlines)
    own = tuple(pack_failed(failure) for failure in loaded.failures)
    return Report(
        tool=Tool(version=ddp_doctor.__version__, command=command, seconds=round(time.monotonic() - started, 3)),
        target=describe(meant) if describe else Target(),
        verdict=diagnosis.verdict,
        ranks=ranks,
        findings=(*diagnosis.findings, *own),
        outcomes=outcomes,
        probes=runs,
        ignored=ignored,
        areas=tuple(area for area in areas if area is not None),
        pairs=tuple(pairs(meant)),
        left_behind=tuple(LeftBehind(pid=pid, worker=worker) for pid, worker in (host.undead if host else {}).items()),
        interrupted=(host.interrupted if host else interrupted) or None,
    )


def observe(
    loaded: Loaded,
    host: Host,
    probes: Sequence[Probe],
    selection: Selection | None,
    progress: Callable[[tuple[str, ...]], None] | None = None,
) -> Collected:
    """What these probes bring where the judgement on it is made elsewhere, together with what other hosts show."""
    checks, _ = (selection or Selection()).split(loaded.checks())
    chosen = _wanted((*probes, *loaded.pack.probes), checks, (*interpreters(), *loaded.pack.interpreters))
    return collect(host, chosen, Facts(), progress)


def _wanted(probes: Sequence[Probe], checks: Sequence[Check], meanings: Sequence[Interpreter]) -> tuple[Probe, ...]:
    kinds = raw_kinds(wanted_kinds(checks), meanings)
    return tuple(closure([probe for probe in probes if not probe.separates], kinds))


def _cut_short(host: Host, runs: Iterable[ProbeRun]) -> str:
    """What had not answered when the examination was ended early; empty where it was not."""
    if not host.interrupted:
        return ""
    out = [run.name for run in runs if run.reason == host.interrupted or run.status == "timeout"]
    return f"{host.interrupted} before {', '.join(out)} answered" if out else f"{host.interrupted} before the end"


def _repeats(separator: Separator, command: str) -> bool:
    """Whether a separator says to do what was just done."""
    return any(line.startswith(f"ddp-doctor {command} PID") for line in separator.commands)


def _elsewhere(separator: Separator) -> bool:
    """Whether a separator says to look at other nodes."""
    return any(line.endswith("# on each other node") for line in separator.commands)


def _separating(probes: Sequence[Probe], diagnosis: Diagnosis, done: set[str]) -> tuple[Probe, ...]:
    """Probes that tell the verdict's candidates apart and have not run."""
    candidates = set(diagnosis.verdict.candidates)
    return tuple(
        probe for probe in probes if probe.name not in done and len(candidates.intersection(probe.separates)) > 1
    )
