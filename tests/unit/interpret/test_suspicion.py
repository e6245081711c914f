"""Events of logs to suspicions, on values."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.communicator import Phase
from ddp_doctor.facts.log import Condition, LogEvent, NcclProgress, Recorded, Suspicion
from ddp_doctor.interpret.suspicion import interpret
from ddp_doctor.model import Confidence, Fact, Facts, Severity, Stage, Subject


def event(name: str, sort: Any, *leads: str, order: int = 1, **more: Any) -> LogEvent:
    return LogEvent(signature=name, sort=sort, leads=leads, order=order, source=f"a.log:{order}", line=name, **more)


def suspicions(*facts: Fact) -> list[tuple[str, Confidence]]:
    found = [fact for fact in interpret(Facts(facts)) if isinstance(fact, Suspicion)]
    return [(fact.finding, fact.confidence) for fact in sorted(found, key=lambda fact: fact.place)]


LIKELY, POSSIBLE, CERTAIN = Confidence.LIKELY, Confidence.POSSIBLE, Confidence.CERTAIN


def test_the_earlier_of_two_causes_comes_first() -> None:
    late = event("late", "cause", "DDP501", order=9, confidence=LIKELY)
    early = event("early", "cause", "DDP301", order=2, confidence=LIKELY)
    assert suspicions(late, early) == [("DDP301", LIKELY), ("DDP501", LIKELY)]


def test_the_clock_beats_the_place_in_the_files() -> None:
    first_file = event("late", "cause", "DDP501", order=1, confidence=LIKELY, at=50.0)
    other_file = event("early", "cause", "DDP301", order=2, confidence=LIKELY, at=20.0)
    assert suspicions(first_file, other_file)[0] == ("DDP301", LIKELY)


def test_a_named_cause_silences_candidates_and_folds_echoes() -> None:
    facts = (
        event("cause", "cause", "DDP405", confidence=CERTAIN),
        event("ambiguous", "ambiguous", "DDP301", "DDP302", order=2),
        event("echo", "echo", "DDP606", order=3),
    )
    assert suspicions(*facts) == [("DDP405", CERTAIN)]
    (suspicion,) = [fact for fact in interpret(Facts(facts)) if isinstance(fact, Suspicion)]
    assert [folded.text for folded in suspicion.folded] == ["ambiguous", "echo"]


def test_clues_reorder_candidates_and_never_name_a_cause() -> None:
    error = event("error", "ambiguous", "DDP405", "DDP301")
    clue = event("clue", "clue", "DDP301", order=2, weight=3.0)
    assert suspicions(error, clue) == [("DDP301", POSSIBLE), ("DDP405", POSSIBLE)]
    (alone,) = [fact for fact in interpret(Facts([clue])) if isinstance(fact, Suspicion)]
    assert alone.severity is Severity.NOTE


def test_clues_of_a_job_that_trains_say_nothing() -> None:
    assert suspicions(event("clue", "clue", "DDP301"), event("loss", "progress", order=2, stage=Stage.TRAINING)) == []


def test_conditions() -> None:
    seen = event(
        "dup", "ambiguous", "DDP106", conditions=(Condition(finding="DDP107", confidence=LIKELY, seen=("daemon",)),)
    )
    assert suspicions(seen)[0] == ("DDP106", POSSIBLE)
    assert suspicions(seen, event("daemon", "clue", order=2))[0] == ("DDP107", LIKELY)
    differs = (Condition(finding="DDP109", confidence=LIKELY, differs="total"),)
    one, same, other = (
        event("size", "clue", order=n, fields={"total": t}, conditions=differs)
        for n, t in ((1, "8"), (2, "8"), (3, "4"))
    )
    assert suspicions(one, same) == []
    assert suspicions(one, other)[0] == ("DDP109", LIKELY)


def progress(rank: int, phase: Phase, stage: Stage) -> NcclProgress:
    return NcclProgress(
        subject=Subject(host="vm", pid=rank), rank=rank, ranks=4, comm="0xb4", phase=phase, stage=stage, last="x"
    )


def test_ranks_that_left_no_line() -> None:
    (first, *_) = suspicions(
        progress(0, "bootstrap", Stage.COMM_BOOTSTRAP), progress(1, "bootstrap", Stage.COMM_BOOTSTRAP)
    )
    assert first == ("DDP101", POSSIBLE)
    everybody = [progress(rank, "exchange", Stage.COMM_TOPOLOGY) for rank in range(4)]
    assert [finding for finding, _ in suspicions(*everybody)] == ["DDP401", "DDP404", "DDP407", "DDP406"]


def test_recorders_that_part() -> None:
    def record(rank: int, number: int, call: str) -> Recorded:
        return Recorded(
            subject=Subject(rank=rank), source=f"trace_{rank}", group="0", sequence=number, call=call, sizes="[4]"
        )

    same = [record(rank, 1, "nccl:broadcast") for rank in range(2)]
    assert suspicions(*same) == []
    assert suspicions(*same, record(0, 2, "nccl:all_reduce"), record(1, 2, "nccl:barrier"))[0] == ("DDP603", LIKELY)
