"""One cause, or a reason why none: the choice among findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from ddp_doctor.diagnosis import Diagnosis, diagnose
from ddp_doctor.judge import Judgement
from ddp_doctor.model import (
    Absent,
    Check,
    Confidence,
    Evidence,
    Facts,
    Finding,
    Fix,
    Outcome,
    RankRow,
    Separator,
    Severity,
    Stage,
)


def judged(
    id: str,
    *,
    severity: Severity = Severity.ERROR,
    confidence: Confidence = Confidence.CERTAIN,
    ranks: tuple[int, ...] = (),
    acts_at: frozenset[Stage] = frozenset(Stage),
    residual: bool = False,
    explains: tuple[str, ...] = (),
) -> Judgement:
    """A hit of a check made for the occasion."""

    class Made(Check):
        name = title = id.lower()

        def diagnose(self, facts: Facts) -> Iterator[Finding]:
            yield self.finding(
                f"{id} happened",
                because="it did",
                evidence=[Evidence(fact="X", source="here", value="seen")],
                fixes=[Fix(title="undo it")],
                severity=severity,
                confidence=confidence,
                ranks=ranks,
            )

    Made.id, Made.acts_at, Made.residual, Made.explains = id, acts_at, residual, explains
    check = Made()
    return Judgement(check=check, outcome=Outcome(id=id, status="hit"), findings=tuple(check.diagnose(Facts())))


def clear(id: str) -> Judgement:
    """A check that found nothing."""
    return Judgement(check=judged(id).check, outcome=Outcome(id=id, status="clear"))


def ids(diagnosis: Diagnosis) -> list[str]:
    """The findings in order."""
    return [finding.id for finding in diagnosis.findings]


def test_healthy() -> None:
    assert diagnose([clear("DDP101")]).verdict.status == "healthy"


def test_nothing_found_in_a_hung_job_is_not_health() -> None:
    assert diagnose([clear("DDP101")], waiting=True).verdict.status == "unknown"


def test_no_answer_is_not_health() -> None:
    missing = Absent(kind="TorchCuda", status="timeout", reason="torch gave no answer in 5.0 s")
    silent = Judgement(
        check=judged("DDP413").check, outcome=Outcome(id="DDP413", status="unknown", reason="x"), missing=missing
    )
    verdict = diagnose([clear("DDP101"), silent]).verdict
    assert verdict.status == "unknown" and "torch gave no answer in 5.0 s" in verdict.summary


def test_nothing_examined() -> None:
    assert diagnose([clear("DDP101")], examined=False).verdict.status == "nothing"


def test_a_note_is_no_problem() -> None:
    diagnosis = diagnose([judged("DDP412", severity=Severity.NOTE)])
    assert diagnosis.verdict.status == "healthy" and ids(diagnosis) == ["DDP412"]


def test_an_error_leads_a_warning_that_acts_earlier() -> None:
    late = judged("DDP405", acts_at=frozenset({Stage.TRANSPORT}))
    early = judged("DDP110", severity=Severity.WARNING, acts_at=frozenset({Stage.STORE_CONNECT}))
    assert diagnose([early, late]).verdict.finding == "DDP405"


def test_of_two_errors_the_one_that_acts_first_leads() -> None:
    late = judged("DDP101", acts_at=frozenset({Stage.TRANSPORT}))
    early = judged("DDP204", acts_at=frozenset({Stage.STORE_CONNECT}))
    assert ids(diagnose([late, early])) == ["DDP204", "DDP101"]


def test_a_residual_yields_to_another_cause_of_the_same_ranks() -> None:
    missing = judged("DDP101", ranks=(1,), residual=True)
    crashed = judged("DDP604", ranks=(1, 2))
    diagnosis = diagnose([missing, crashed])
    assert ids(diagnosis) == ["DDP604"]
    assert diagnosis.findings[0].explains == ("DDP101",)


def test_a_residual_about_other_ranks_stays() -> None:
    assert len(ids(diagnose([judged("DDP101", ranks=(3,), residual=True), judged("DDP604", ranks=(1,))]))) == 2


def test_an_explained_finding_is_folded() -> None:
    cause = judged("DDP103", explains=("DDP101",))
    assert ids(diagnose([judged("DDP101"), cause])) == ["DDP103"]


def test_a_death_that_was_seen_is_not_folded_into_a_guess() -> None:
    died = judged("DDP101", ranks=(1,), residual=True)
    guess = judged("DDP202", confidence=Confidence.LIKELY, explains=("DDP101",))
    assert ids(diagnose([died, guess])) == ["DDP101", "DDP202"]


def test_possible_never_becomes_the_verdict() -> None:
    verdict = diagnose([judged("DDP103", confidence=Confidence.POSSIBLE)]).verdict
    assert (verdict.status, verdict.finding, verdict.candidates) == ("unknown", None, ("DDP103",))


def test_two_inferences_about_one_rank_are_undecided_and_the_probe_is_named() -> None:
    one = judged("DDP302", confidence=Confidence.LIKELY, ranks=(1,))
    two = judged("DDP301", confidence=Confidence.LIKELY, ranks=(1,))
    probe = Separator(between=("DDP301", "DDP302"), title="connect to a port of your own on that interface")
    verdict = diagnose([one, two], separators=[probe]).verdict
    assert verdict.status == "unknown" and set(verdict.candidates) == {"DDP301", "DDP302"}
    assert verdict.separate == probe


def test_what_was_seen_has_no_rival() -> None:
    seen = judged("DDP302", ranks=(1,))
    inferred = judged("DDP301", confidence=Confidence.LIKELY, ranks=(1,))
    assert diagnose([inferred, seen]).verdict.finding == "DDP302"


def test_two_faults_on_two_ranks_are_both_shown() -> None:
    one = judged("DDP302", confidence=Confidence.LIKELY, ranks=(1,))
    two = judged("DDP301", confidence=Confidence.LIKELY, ranks=(2,))
    diagnosis = diagnose([one, two])
    assert diagnosis.verdict.status == "problem" and len(diagnosis.findings) == 2


def test_a_cause_that_cannot_act_where_the_rank_stands_is_dropped() -> None:
    transport = judged("DDP405", ranks=(0,), acts_at=frozenset({Stage.TRANSPORT}))
    row = RankRow(rank=0, stage=Stage.STORE_WAIT.label, state="waiting")
    assert ids(diagnose([transport], [row])) == []
    assert ids(diagnose([transport], [RankRow(rank=0, stage=Stage.TRANSPORT.label, state="waiting")])) == ["DDP405"]
    # another job of the node has a rank 0 too
    other = RankRow(rank=0, stage=Stage.TRANSPORT.label, state="waiting")
    assert ids(diagnose([transport], [other, row])) == ids(diagnose([transport], [row, other])) == ["DDP405"]


def test_an_examination_that_was_cut_short_is_no_sign_of_health() -> None:
    verdict = diagnose([clear("DDP102")], interrupted="interrupted before torch answered").verdict
    assert (verdict.status, verdict.summary) == ("unknown", "interrupted before torch answered")
    assert diagnose([judged("DDP102")], interrupted="interrupted before torch answered").verdict.finding == "DDP102"


@pytest.mark.parametrize("status", ["timeout", "crashed"])
def test_what_gave_no_answer_leaves_it_open(status: Literal["timeout", "crashed"]) -> None:
    silent = Judgement(
        check=judged("DDP507").check,
        outcome=Outcome(id="DDP507", status="unknown"),
        missing=Absent(kind="TorchRuntime", status=status, reason="python cannot be started"),
    )
    verdict = diagnose([clear("DDP102"), silent]).verdict
    assert verdict.status == "unknown" and "python cannot be started" in verdict.summary
    assert "no problem" not in verdict.summary
