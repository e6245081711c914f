"""DDP401 on values."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.gpu.p2p_iommu_acs import P2pIommuAcs
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.model import Absent, Confidence


def lost(number: int, **changes: Any) -> CommunicatorRank:
    """A rank whose all-reduce over P2P was launched and never ended."""
    via = f"Channel 00/0 : {number}[{number}] -> {1 - number}[{1 - number}] via P2P/CUMEM"
    return rank(number, STARTED, via, "Connected all rings", **{"step": "all-reduce on the GPU"} | changes)


def test_hit_the_data_arrives_without_p2p_only() -> None:
    again = [passed(number, without_p2p=True) for number in range(2)]
    judged = run_check(P2pIommuAcs, *meaning(lost(0), lost(1), *again))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit" and finding.confidence is Confidence.LIKELY
    assert finding.fixes[-1].commands == ("export NCCL_P2P_DISABLE=1",) and finding.fixes[-1].proven


def test_hit_wrong_values_are_at_most_likely() -> None:
    wrong = [lost(number, outcome="failed", value_ok=False) for number in range(2)]
    again = [passed(number, without_p2p=True) for number in range(2)]
    (finding,) = run_check(P2pIommuAcs, *meaning(*wrong, *again)).findings
    assert finding.confidence is Confidence.LIKELY and "wrong" in finding.summary


def test_only_possible_where_it_fails_without_p2p_too() -> None:
    again = [lost(number, without_p2p=True) for number in range(2)]
    (finding,) = run_check(P2pIommuAcs, *meaning(lost(0), lost(1), *again)).findings
    assert finding.confidence is Confidence.POSSIBLE


def test_clear_when_the_trial_passed() -> None:
    assert run_check(P2pIommuAcs, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_a_rank_never_launched() -> None:
    late = lost(1, step="all-reduce")
    assert run_check(P2pIommuAcs, *meaning(lost(0), late)).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(P2pIommuAcs, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(P2pIommuAcs, absent).outcome.status == "not-applicable"
