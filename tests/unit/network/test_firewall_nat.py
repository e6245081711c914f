"""DDP302 on values."""

from __future__ import annotations

import msgspec
from checking import run_check
from ddp_doctor_checks.network.firewall_nat import FirewallNat
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.names import Route
from ddp_doctor.facts.rendezvous import Meeting, StoreAnswer
from ddp_doctor.model import Absent, Confidence


def refused(address: str, network: str = "net:[2]") -> tuple[CommunicatorRank, CommunicatorRank]:
    """Rank 1, elsewhere, that cannot connect to the address rank 0 told."""
    root = rank(0, f"Bootstrap: Using eth0:{address}<0>", STARTED)
    line = f"socketPollConnect: connect to {address}<50019> returned Connection refused, retrying (1/34) after sleep"
    return root, rank(1, "Bootstrap: Using eth0:10.0.0.6<0>", STARTED, line, network=network)


def test_hit_an_ordinary_address_that_refuses() -> None:
    judged = run_check(FirewallNat, *meaning(*refused("10.0.0.5")))
    assert judged.outcome.status == "hit"
    assert judged.findings[0].confidence is Confidence.LIKELY and judged.findings[0].ranks == (0,)


def test_clear_when_the_trial_passed() -> None:
    assert run_check(FirewallNat, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_the_address_is_loopback() -> None:
    """That is a wrong interface, DDP301."""
    assert run_check(FirewallNat, *meaning(*refused("127.0.0.1"))).outcome.status == "clear"


def test_clear_when_the_rank_there_has_died() -> None:
    root, other = refused("10.0.0.5")
    dead = msgspec.structs.replace(root, outcome="crashed", error="the process ended with code 1")
    assert run_check(FirewallNat, *meaning(dead, other)).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(FirewallNat, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(FirewallNat, absent).outcome.status == "not-applicable"


def master_says(verdict: str) -> tuple[Meeting, Route, StoreAnswer]:
    """Rank 1's view of rank 0's node."""
    return (
        Meeting(address="10.9.9.9", address_variable="MASTER_ADDR", port=29500, hosts=False),
        Route(to="10.9.9.9", interface="eth0", local_address="10.0.0.5"),
        StoreAnswer(name="10.9.9.9", address="10.9.9.9", port=29500, verdict=verdict),  # type: ignore[arg-type]
    )


def test_a_master_that_is_silent_is_possible_even_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    judged = run_check(FirewallNat, *master_says("dropped"), absent)
    assert judged.outcome.status == "hit"
    assert judged.findings[0].confidence is Confidence.POSSIBLE


def test_a_master_that_refuses_has_just_not_started() -> None:
    assert run_check(FirewallNat, *master_says("refused")).findings == ()
