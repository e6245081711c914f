"""DDP402 on values."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.gpu.p2p_driver import P2pDriver
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.model import Absent, Confidence


def connecting(number: int, via: str = "P2P/CUMEM", **changes: Any) -> CommunicatorRank:
    """A rank in the connection phase."""
    return rank(
        number, STARTED, f"Channel 00/0 : {number}[{number}] -> {1 - number}[{1 - number}] via {via}", **changes
    )


def test_hit_one_rank_stands_in_a_call_of_the_driver() -> None:
    stuck = connecting(1, threads={"101": "sleep", "109": "ioctl"})
    judged = run_check(P2pDriver, *meaning(connecting(0, threads={"100": "polls"}), stuck))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.ranks == (1,) and finding.confidence is Confidence.LIKELY


def test_clear_when_the_trial_passed() -> None:
    assert run_check(P2pDriver, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_the_transport_is_shared_memory() -> None:
    """That is the GPU or the driver at large, DDP407."""
    stuck = connecting(1, "SHM/direct/direct", threads={"109": "ioctl"})
    assert run_check(P2pDriver, *meaning(connecting(0, "SHM/direct/direct"), stuck)).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(P2pDriver, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(P2pDriver, absent).outcome.status == "not-applicable"
