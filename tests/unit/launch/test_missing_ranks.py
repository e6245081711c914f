"""DDP101 on values."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.launch.missing_ranks import MissingRanks
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.model import Absent, Confidence


def test_hit_two_of_three_wait_in_the_bootstrap() -> None:
    waiting = [rank(number, STARTED, world_size=3) for number in range(2)]
    judged = run_check(MissingRanks, *meaning(*waiting))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.ranks == (2,) and finding.confidence is Confidence.CERTAIN


def test_hit_in_the_older_order_of_lines() -> None:
    """Up to 2.22 a rank that waits has not printed Init START yet."""
    waiting = [rank(number, "Using network Socket", world_size=3, version="2.21.5") for number in range(2)]
    assert [finding.ranks for finding in run_check(MissingRanks, *meaning(*waiting)).findings] == [(2,)]


def test_clear_when_the_trial_passed() -> None:
    assert run_check(MissingRanks, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_another_cause_is_in_the_log() -> None:
    told = rank(0, STARTED, "WARN Bootstrap Root : rank 1 of 3 ranks has already checked in", world_size=3)
    assert run_check(MissingRanks, *meaning(told, rank(1, STARTED, world_size=3))).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(MissingRanks, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(MissingRanks, absent).outcome.status == "not-applicable"
