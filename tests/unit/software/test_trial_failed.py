"""DDP508 on values; the live faults are in tests/live/test_torch_probe.py."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.software.trial_failed import TrialFailed

from ddp_doctor.diagnosis import diagnose
from ddp_doctor.facts.names import Interface
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.judge import Judgement
from ddp_doctor.model import Absent, Check, Confidence, Facts, Fix, Severity, Stage


def rank(number: int, **changes: Any) -> TrialRank:
    values: dict[str, Any] = {
        "source": "2 ranks started with /opt/env/bin/python",
        "rank": number,
        "world_size": 2,
        "backend": "gloo",
        "stage": Stage.FIRST_COLLECTIVE,
        "outcome": "passed",
        "value_ok": True,
        "seconds": 0.01,
    }
    return TrialRank(**(values | changes))


def test_hit_a_rank_that_failed_is_quoted() -> None:
    error = (
        "DistNetworkError: The client socket has failed to connect to any network address of (127.0.0.1, 60641)."
        " The client socket has failed to connect to 252.85.0.0:26158 (errno: 101 - Network is unreachable)."
    )
    judged = run_check(
        TrialFailed,
        rank(0, outcome="unfinished", stage=Stage.STORE_CONNECT, value_ok=None),
        rank(1, outcome="failed", stage=Stage.STORE_CONNECT, value_ok=None, error=error),
    )
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert error in finding.summary and "store-connect" in finding.summary
    assert finding.confidence is Confidence.LIKELY and finding.ranks == ()
    assert finding.fixes[0].commands == ("ip link set lo up",)


def test_hit_wrong_values() -> None:
    bad = rank(1, outcome="failed", value_ok=False, error="all_reduce returned wrong values")
    assert "wrong values" in run_check(TrialFailed, rank(0), bad).findings[0].summary


def test_hit_a_trial_that_was_given_little_time_is_a_warning() -> None:
    def stuck(seconds: float) -> Severity:
        ranks = [rank(n, outcome="timeout", stage=Stage.GLOO_MESH, value_ok=None, seconds=seconds) for n in range(2)]
        return run_check(TrialFailed, *ranks).findings[0].severity

    assert stuck(10.2) is Severity.ERROR
    assert stuck(4.0) is Severity.WARNING


def test_hit_ranks_that_gave_up_by_themselves_within_enough_time_are_an_error() -> None:
    gave_up = [
        rank(n, outcome="timeout", stage=Stage.GLOO_MESH, value_ok=None, seconds=4.6, given=10.2, error="timed out")
        for n in range(2)
    ]
    (finding,) = run_check(TrialFailed, *gave_up).findings
    assert finding.severity is Severity.ERROR and finding.confidence is Confidence.LIKELY


def test_hit_the_silent_rank_is_named_not_the_one_that_waited_for_it() -> None:
    waited = "DistStoreError: wait timeout after 7000ms, keys: /ddp_doctor/default_pg/0//cpu//0/1"
    judged = run_check(
        TrialFailed,
        rank(0, outcome="timeout", stage=Stage.GLOO_MESH, value_ok=None, seconds=7.0, error=waited),
        rank(1, outcome="timeout", stage=Stage.GLOO_MESH, value_ok=None, seconds=10.2),
    )
    (finding,) = judged.findings
    assert "rank 1 stands at gloo-mesh" in finding.summary and "10 s" in finding.summary


class KnownCause(Check):
    """Stands for any check that names why the trial failed."""

    id, name, title = "DDP301", "wrong-interface", "A cause"


def test_it_yields_to_a_check_that_names_the_cause() -> None:
    failed = rank(0, outcome="failed", stage=Stage.GLOO_MESH, error="Unable to find address for: eth99")
    echo = run_check(TrialFailed, failed)
    cause = KnownCause().finding(
        "a cause", because="", evidence=[failed.evidence()], fixes=[Fix(title="a fix")], confidence=Confidence.CERTAIN
    )
    known = Judgement(check=KnownCause(), outcome=echo.outcome, findings=(cause,))
    diagnosis = diagnose((echo, known))
    assert diagnosis.verdict.finding == "DDP301"
    assert [finding.id for finding in diagnosis.findings] == ["DDP301"]
    assert diagnosis.findings[0].explains == ("DDP508",)


def test_clear() -> None:
    assert run_check(TrialFailed, rank(0), rank(1)).outcome.status == "clear"
    assert Facts([rank(0)])[TrialRank][0].text() == "gloo rank 0/2 passed at first-collective"


def test_unknown() -> None:
    absent = Absent(kind="TrialRank", status="timeout", reason="only 1.0 s were left", how_to_get="--timeout 120")
    assert run_check(TrialFailed, absent).outcome.status == "unknown"


def test_a_loopback_interface_that_is_down_is_the_summary() -> None:
    lo = Interface(name="lo", index=1, loopback=True)
    failed = rank(1, outcome="failed", stage=Stage.STORE_CONNECT, value_ok=None, error="connect to 103.85.0.0:12425")
    (finding,) = run_check(TrialFailed, lo, failed).findings
    assert finding.summary.startswith("the loopback interface lo is down")
    assert "103.85" not in finding.summary
    assert finding.fixes[0].commands == ("ip link set lo up",)


def test_a_loopback_interface_that_is_up_leaves_the_error_in_front() -> None:
    lo = Interface(name="lo", index=1, loopback=True, up=True, running=True)
    failed = rank(1, outcome="failed", stage=Stage.STORE_CONNECT, value_ok=None, error="no such thing")
    (finding,) = run_check(TrialFailed, lo, failed).findings
    assert "no such thing" in finding.summary
