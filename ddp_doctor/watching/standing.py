"""How a job stands after a look at it: through, on its way, slow, hung, or not to be told."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from ddp_doctor.facts.job import OWN_CODE, JobRank, JobView, jobs
from ddp_doctor.model import Confidence, Facts, Report, Severity, Stage
from ddp_doctor.running_job import Examined
from ddp_doctor.watching.progress import Done, done, got_on

AGAIN_SECONDS = 0.5
"""Between the two looks that have to agree before a job is called hung."""
PROGRESS_SECONDS = 4.0
"""For so long a rank that is merely elsewhere, and uses no processor, is given to show that it gets on."""
AHEAD_SECONDS = PROGRESS_SECONDS
"""The first of them is taken so long before the time is up, so that the report comes when it is."""
SLOW_RANK = "DDP604"
NOT_YET_THERE = (SLOW_RANK, "DDP505", None)
"""What may be said of a rank that has not come, without a proof that it never will."""
PATIENCE = 4
"""A job in which those that the others wait for still work is reported only after so many times `after`."""
MOST_UNCLEAR = 3


class Standing(enum.Enum):
    """What a look says about the initialisation of a job."""

    THROUGH = "every rank has initialised and nothing stands still"
    EARLY = "no rank waits for another yet"
    SLOW = "ranks wait for one that still works"
    HUNG = "ranks wait, and what they wait for does not come"
    UNCLEAR = "initialised, and whether it stands still cannot be told"


class Look(NamedTuple):
    """One examination of a job and what it says."""

    report: Report
    standing: Standing
    slow: str
    """Where the rank stands that the others wait for, if it still works."""
    places: frozenset[tuple[object, ...]]
    """Which process stands where."""
    late: frozenset[int] = frozenset()
    """PIDs of the ranks that the job waits for, where they use no processor and nothing proves that they never come."""

    @property
    def pids(self) -> dict[int, int]:
        """PID -> rank, of the ranks that it saw."""
        return {row.pid: row.rank for row in self.report.ranks if row.pid is not None and row.rank is not None}


def look_at(examined: Examined) -> Look:
    """What an examination says about the initialisation of the jobs it saw."""
    views = jobs(examined.facts)
    slow = ""
    late: frozenset[int] = frozenset()
    standing = Standing.EARLY
    if views:
        standings = [_standing(view, examined.report) for view in views]
        standing = next(each for each in ORDER if each in standings)
        working = [rank for view in views for rank in view.culprits() if works(rank)]
        not_yet = [] if working or standing is not Standing.HUNG else _not_yet_there(views, examined.report)
        late = frozenset(rank.subject.pid for rank in not_yet if rank.subject.pid is not None)
        slow = "".join(f"{each.name} still works in {each.where or each.doing}" for each in (working or not_yet)[:1])
    return Look(examined.report, standing, slow, _places(examined.facts), late)


ORDER = (Standing.HUNG, Standing.SLOW, Standing.UNCLEAR, Standing.EARLY, Standing.THROUGH)


def _not_yet_there(views: Iterable[JobView], report: Report) -> list[JobRank]:
    """The ranks that a job waits for, or all of one that has not begun, where they are merely somewhere else."""
    if report.verdict.finding not in NOT_YET_THERE or _proven_stuck(report):
        return []
    blamed = [rank for view in views for rank in view.culprits() or view.ranks if rank.role == "rank"]
    elsewhere = all(
        rank.state == "waiting" and rank.doing in OWN_CODE and not rank.waits_for and not in_init(rank)
        for rank in blamed
    )
    return blamed if elsewhere else []


def works(rank: JobRank) -> bool:
    """Whether a rank makes progress of its own: it uses a processor or moved between two looks."""
    return rank.state == "running"


def in_init(rank: JobRank) -> bool:
    """Whether a process is seen inside the initialisation, or a launcher waits for other nodes."""
    if rank.doing == "waiting-for-nodes":
        return True
    return rank.role == "rank" and (rank.call == "init_process_group" or rank.stage > Stage.PYTHON)


def idle(ranks: Iterable[JobRank]) -> bool:
    """Whether all ranks of a job stand still before any of them has come to init."""
    alive = [rank for rank in ranks if rank.role == "rank" and rank.state != "exited"]
    return bool(alive) and all(rank.state in ("waiting", "stopped", "blocked") and rank.has_stack for rank in alive)


def _standing(view: JobView, report: Report) -> Standing:
    alive = [rank for rank in view.ranks if rank.role == "rank" and rank.state != "exited"]
    through = bool(alive) and not view.job.missing and all(rank.beyond_init for rank in alive)
    named = report.verdict.status == "problem"
    if view.job.hung is False:
        proven = named and report.verdict.confidence is Confidence.CERTAIN and _a_named_rank_waits(alive, report)
        if proven or (named and not through and idle(view.ranks)):
            return Standing.HUNG
        if any(works(rank) for rank in view.culprits()) and any(map(_comes_once, alive)):
            return Standing.SLOW
        return Standing.THROUGH if through else Standing.EARLY
    if through and not named:
        return Standing.UNCLEAR
    blamed = view.culprits()
    if blamed and all(works(rank) for rank in blamed) and not _proven_stuck(report):
        return Standing.SLOW
    waits = any(in_init(rank) or rank.waits_for for rank in (*view.ranks, *view.others)) or idle(view.ranks)
    return Standing.HUNG if waits and (named or report.verdict.status == "unknown") else Standing.EARLY


def _proven_stuck(report: Report) -> bool:
    """Whether the cause is certain and will not pass: a rank may be late for certain, and comes."""
    return report.verdict.confidence is Confidence.CERTAIN and report.verdict.finding != SLOW_RANK


def _comes_once(rank: JobRank) -> bool:
    """Whether a rank waits in what belongs to initialisation though the group exists: a communicator, a DDP constructor."""
    belongs = Stage.COMM_BOOTSTRAP <= rank.stage <= Stage.TRANSPORT or rank.stage is Stage.DDP_VERIFY
    return belongs and rank.state == "waiting"


def _a_named_rank_waits(alive: Iterable[JobRank], report: Report) -> bool:
    """Whether a rank that an error names stands still, also where all the others train."""
    ranks = {
        rank
        for finding in report.findings
        if finding.id == report.verdict.finding and finding.severity is Severity.ERROR
        for rank in finding.ranks
    }
    return any(each.rank in ranks and each.state == "waiting" for each in alive)


def _places(facts: Facts) -> frozenset[tuple[object, ...]]:
    """By function, not by line: one that waits in a loop of its own has not moved on."""
    return frozenset(
        (rank.subject.process, rank.stage, rank.call, *(frame.rpartition(" ")[2] for frame in rank.user_frames))
        for rank in facts[JobRank]
        if rank.role == "rank"
    )


def _slow(look: Look) -> Look:
    """What looked like a hang, of a rank that gets on: what is said of it is no error."""
    milder = tuple(
        msgspec.structs.replace(each, severity=Severity.WARNING) if each.id in NOT_YET_THERE else each
        for each in look.report.findings
    )
    report = msgspec.structs.replace(look.report, findings=milder)
    return look._replace(standing=Standing.SLOW, report=report)


def first_look(began: float, after: float) -> float:
    """When to look first at a job whose initialisation began at that time."""
    return began + after - min(AHEAD_SECONDS, after / 2)


def pause_between_looks(after: float) -> float:
    """Seconds until it is worth to look at a job again that was not hung."""
    return min(max(after / 2, 1.0), 60.0)


def settle(
    look: Callable[[], Look],
    after: float,
    *,
    note: Callable[[str], None],
    began: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    done: Callable[[Iterable[int], Collection[int]], dict[int, Done]] = done,
) -> Look:
    """Look at a job until it is through, hangs at two looks, is slow for too long, or nobody waits any more.

    A rank that is merely late hangs if besides it has done nothing between the two.

    `began` is the monotonic time at which its first rank came to init. `note` is told once that it is slow.
    """
    told = False
    unclear = 0
    while True:
        started = clock()
        seen = look()
        if seen.standing is Standing.HUNG:
            took = clock() - started
            before = done(seen.late, seen.pids)
            sleep(max(PROGRESS_SECONDS if seen.late else AGAIN_SECONDS, began + after - clock() - took))
            again = look()
            if again.standing is Standing.HUNG and again.places == seen.places:
                now = done(before, seen.pids)
                if not before or not all(got_on(before[pid], now[pid]) for pid in before):
                    sleep(max(0.0, began + after - clock()))
                    return again
                again = _slow(again)
            seen = again
        if seen.standing in (Standing.THROUGH, Standing.EARLY):
            return seen
        unclear = unclear + 1 if seen.standing is Standing.UNCLEAR else 0
        if unclear >= MOST_UNCLEAR:
            return seen
        if seen.standing is Standing.SLOW:
            if clock() - began >= PATIENCE * after:
                return seen
            if not told:
                note(seen.slow)
                told = True
        sleep(AGAIN_SECONDS if seen.standing is Standing.HUNG else pause_between_looks(after))
