"""DDP305 on values."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.network.rdma_access import RdmaAccess
from trial import REFUSED, meaning, passed, rank

from ddp_doctor.model import Absent, Confidence


def test_hit_every_rank_asks_for_a_network_that_is_not_there() -> None:
    asked = {"NCCL_NET": "IB"}
    line = "WARN Failed to initialize any NET plugin"
    failed = [rank(number, line, variables=asked, outcome="failed", code=5) for number in range(2)]
    judged = run_check(RdmaAccess, *meaning(*failed))
    assert judged.outcome.status == "hit"
    assert judged.findings[0].confidence is Confidence.CERTAIN and judged.findings[0].ranks == (0, 1)
    assert judged.findings[0].fixes[0].commands == ("unset NCCL_NET",)


def test_clear_when_the_trial_passed() -> None:
    assert run_check(RdmaAccess, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_one_rank_alone_asks_for_it() -> None:
    """That is a difference between ranks, DDP118."""
    one = rank(1, "WARN Failed to initialize any NET plugin", variables={"NCCL_NET": "IB"}, outcome="failed", code=5)
    assert run_check(RdmaAccess, *meaning(rank(0), one)).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(RdmaAccess, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(RdmaAccess, absent).outcome.status == "not-applicable"
