"""How a job stands, from facts, and what a series of looks comes to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import pytest
from job_facts import busy as at_work, collective, job, waiting

from ddp_doctor.facts.job import JobRank
from ddp_doctor.model import Confidence, Facts, Finding, Report, Severity, Stage, Target, Tool, Verdict, VerdictStatus
from ddp_doctor.running_job import Examined
from ddp_doctor.watching.progress import Done
from ddp_doctor.watching.standing import PROGRESS_SECONDS, Look, Standing, look_at, settle


def examined(ranks: Iterable[JobRank], status: VerdictStatus, hung: bool | None = None) -> Examined:
    """An examination of these ranks with that verdict."""
    rows = list(ranks)
    waited_for = {wait.rank for row in rows for wait in row.waits_for}
    blamed = tuple(row.rank for row in rows if row.rank in waited_for and not row.waits_for and row.rank is not None)
    verdict = Verdict(status=status, confidence=Confidence.LIKELY)
    report = Report(tool=Tool(version="0", command="watch", seconds=0.1), target=Target(), verdict=verdict)
    return Examined(report, Facts(job(*rows, culprits=blamed, hung=hung)))


IDLE: dict[str, Any] = {"state": "waiting", "cpu": 0.0}
THROUGH: dict[str, Any] = {"stage": Stage.TRAINING, "at_most": Stage.TRAINING, "doing": "user-code", "call": ""}


@pytest.mark.parametrize(
    ("ranks", "status", "hung", "standing"),
    [
        ([waiting(0, 1), waiting(1, 0)], "problem", None, Standing.HUNG),
        ([waiting(0, 1), waiting(1, 0)], "unknown", None, Standing.HUNG),
        ([waiting(0, 1), at_work(1)], "problem", None, Standing.SLOW),
        ([waiting(0, 1), at_work(1, **IDLE)], "problem", None, Standing.HUNG),
        ([at_work(0), at_work(1)], "healthy", False, Standing.EARLY),
        ([at_work(0, **IDLE)], "healthy", False, Standing.EARLY),
        ([at_work(0, **IDLE)], "problem", False, Standing.HUNG),
        ([at_work(0, **THROUGH), at_work(1, **THROUGH)], "healthy", False, Standing.THROUGH),
        ([collective(0, "barrier", 1), collective(1, "all_reduce", 0)], "problem", None, Standing.HUNG),
        ([collective(0, "barrier", 1), collective(1, "barrier", 0)], "unknown", None, Standing.UNCLEAR),
        ([collective(0, "barrier", 1), at_work(1, **THROUGH)], "problem", None, Standing.SLOW),
        ([collective(0, "barrier", 1), at_work(1, **THROUGH)], "problem", False, Standing.THROUGH),
        ([waiting(0, 1, stage=Stage.DDP_VERIFY), at_work(1, **THROUGH)], "problem", False, Standing.SLOW),
        ([waiting(0, 1, stage=Stage.COMM_BOOTSTRAP), at_work(1, **THROUGH)], "healthy", False, Standing.SLOW),
    ],
)
def test_standing(ranks: list[JobRank], status: VerdictStatus, hung: bool | None, standing: Standing) -> None:
    assert look_at(examined(ranks, status, hung)).standing is standing


def test_a_late_rank_that_works_is_slow_however_sure_its_lateness_is() -> None:
    seen = examined([waiting(0, 1), at_work(1)], "problem")
    verdict = Verdict(status="problem", finding="DDP604", confidence=Confidence.CERTAIN)
    seen = Examined(msgspec.structs.replace(seen.report, verdict=verdict), seen.facts)
    assert look_at(seen).standing is Standing.SLOW


@pytest.mark.parametrize(
    ("state", "standing"), [({"state": "waiting", "cpu": 0.0}, Standing.HUNG), ({"state": "running"}, Standing.THROUGH)]
)
def test_a_proven_error_counts_where_the_ranks_that_it_names_stand_still(
    state: dict[str, Any], standing: Standing
) -> None:
    ranks = [at_work(0, **THROUGH), at_work(1, **(THROUGH | state))]
    seen = examined(ranks, "problem", False)
    finding = Finding(
        id="DDP116",
        name="duplicate-rank",
        severity=Severity.ERROR,
        confidence=Confidence.CERTAIN,
        summary="two processes are rank 1",
        because="",
        ranks=(1,),
    )
    verdict = Verdict(status="problem", finding="DDP116", confidence=Confidence.CERTAIN)
    report = msgspec.structs.replace(seen.report, verdict=verdict, findings=(finding,))
    assert look_at(seen._replace(report=report)).standing is standing


def test_no_rank_at_all_is_early() -> None:
    assert look_at(examined([], "nothing")).standing is Standing.EARLY


def test_a_slow_job_says_who_works_where() -> None:
    assert (
        look_at(examined([waiting(0, 1), at_work(1)], "problem")).slow
        == "rank 1 still works in train.py:88 prepare_dataset"
    )


HUNG = look_at(examined([waiting(0, 1), waiting(1, 0)], "problem"))
MOVED = look_at(examined([waiting(0, 1, stage=Stage.GLOO_MESH), waiting(1, 0)], "problem"))
SLOW = look_at(examined([waiting(0, 1), at_work(1)], "problem"))
DONE = look_at(examined([at_work(0, **THROUGH)], "healthy", False))
UNCLEAR = look_at(examined([collective(0, "barrier", 1), collective(1, "barrier", 0)], "unknown"))


def settled(*looks: Look, after: float = 120.0, moves: int = 0) -> tuple[Look, int, float, list[str]]:
    """What it settles for, after how many looks and how many seconds, and what it noted; the last look repeats.

    Late ranks move so many bytes from look to look.
    """
    now, taken, noted = [after], [], []

    def done(pids: Iterable[int], others: Collection[int]) -> dict[int, Done]:
        return {pid: Done(now[0], moves * len(taken), {}) for pid in pids}

    def look() -> Look:
        taken.append(looks[min(len(taken), len(looks) - 1)])
        return taken[-1]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    end = settle(look, after, note=noted.append, began=0.0, sleep=sleep, clock=lambda: now[0], done=done)
    return end, len(taken), now[0], noted


def test_a_hang_is_looked_at_twice_before_it_is_one() -> None:
    end, looks, seconds, noted = settled(HUNG)
    assert (end, looks, noted) == (HUNG, 2, [])
    assert seconds < 121


def test_a_late_rank_that_uses_no_processor_hangs_unless_it_moves_data() -> None:
    late = examined([waiting(0, 1), at_work(1, **IDLE)], "problem")
    finding = Finding(
        id="DDP604", name="slow-rank", severity=Severity.ERROR, confidence=Confidence.LIKELY, summary="", because=""
    )
    verdict = Verdict(status="problem", finding="DDP604", confidence=Confidence.LIKELY)
    look = look_at(late._replace(report=msgspec.structs.replace(late.report, verdict=verdict, findings=(finding,))))
    assert look.standing is Standing.HUNG and len(look.late) == 1
    end, looks, seconds, _ = settled(look)
    assert (end.standing, looks, seconds) == (Standing.HUNG, 2, 120 + PROGRESS_SECONDS)
    end, _, seconds, noted = settled(look, moves=10)
    assert end.standing is Standing.SLOW and seconds >= 480
    assert [each.severity for each in end.report.findings] == [Severity.WARNING]
    assert noted == ["rank 1 still works in train.py:88 prepare_dataset"]


def test_what_moves_between_two_looks_is_looked_at_again() -> None:
    assert settled(HUNG, MOVED, DONE)[:2] == (DONE, 3)
    assert settled(HUNG, DONE)[:2] == (DONE, 2)


def test_a_slow_job_is_noted_once_and_reported_after_four_times_as_long() -> None:
    end, _, seconds, noted = settled(SLOW)
    assert end is SLOW and 480 <= seconds <= 540
    assert noted == ["rank 1 still works in train.py:88 prepare_dataset"]
    assert settled(SLOW, SLOW, DONE)[0] is DONE


def test_what_cannot_be_told_is_given_up_in_silence() -> None:
    assert settled(UNCLEAR)[:2] == (UNCLEAR, 3)
