"""DDP302 on values."""

from __future__ import annotations

import msgspec
from checking import run_check
from ddp_doctor_checks.network.firewall_nat import FirewallNat
from path_facts import hosts, listener, tried
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.facts.attendance import Attendance
from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.launch import Variable
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


def test_one_direction_is_dropped() -> None:
    facts = [*hosts("a", "b"), tried("a", "b", "dropped", seconds=3.3), tried("b", "a")]
    (found,) = run_check(FirewallNat, *facts).findings
    assert found.confidence is Confidence.CERTAIN and found.ranks == (1,)
    assert found.summary == "TCP from a to b is dropped on the ports that the kernel chooses, such as 10.0.0.2:40000"
    assert found.fixes[0].commands == ("sudo iptables -I INPUT -s 10.0.0.1 -p tcp -j ACCEPT   # on b",)


def test_all_paths_work() -> None:
    assert run_check(FirewallNat, *hosts("a", "b"), tried("a", "b"), tried("b", "a")).outcome.status == "clear"


def test_paths_that_work_leave_nothing_open_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    facts = [*hosts("a", "b"), tried("a", "b"), tried("b", "a"), absent]
    assert run_check(FirewallNat, *facts).outcome.status == "not-applicable"


def test_a_full_accept_queue_leaves_a_drop_likely() -> None:
    full = listener("b", queued=1024)
    facts = [each for each in hosts("a", "b") if each != listener("b")]
    (found,) = run_check(FirewallNat, *facts, full, tried("a", "b", "dropped"), tried("b", "a")).findings
    assert found.confidence is Confidence.LIKELY


def test_a_listener_that_nobody_heard_of_again_leaves_a_drop_likely() -> None:
    facts = [each for each in hosts("a", "b") if each != listener("b")]
    (found,) = run_check(FirewallNat, *facts, tried("a", "b", "dropped"), tried("b", "a")).findings
    assert found.confidence is Confidence.LIKELY


def test_both_directions_dropped_are_one_finding_for_the_end_that_fails_more() -> None:
    facts = [*hosts("a", "b", "c"), tried("a", "b"), tried("b", "a")]
    facts += [tried("a", "c", "dropped"), tried("b", "c", "dropped"), tried("c", "a"), tried("c", "b")]
    (found,) = run_check(FirewallNat, *facts).findings
    assert "from a, b to c" in found.summary and found.ranks == (2,)


def test_the_master_port_alone() -> None:
    store = {"port": 29500, "uses": ("store",)}
    facts = [*hosts("a", "b"), listener("a", **store), tried("b", "a"), tried("b", "a", "refused", **store)]
    (found,) = run_check(FirewallNat, *facts).findings
    assert found.confidence is Confidence.CERTAIN and found.ranks == (0,)
    assert found.summary.startswith("MASTER_PORT 29500 of a is closed to b: what goes there is rejected")
    assert "--dport 29500" in found.fixes[0].commands[0]


def test_address_translation() -> None:
    back = tried("b", "a", local="172.17.0.2", seen_as="10.0.0.9")
    (found,) = run_check(
        FirewallNat, *hosts("a", "b"), tried("a", "b", "unreachable", error="No route to host"), back
    ).findings
    assert found.summary.startswith("b is behind address translation")


def test_a_translated_source_alone_is_clear() -> None:
    back = tried("b", "a", seen_as="10.0.0.9")
    assert run_check(FirewallNat, *hosts("a", "b"), tried("a", "b"), back).outcome.status == "clear"


def unmet(way: str) -> Attendance:
    return Attendance(
        world_size=2, present=(1,), missing=(0,), by="alone", lost="nobody", place="10.9.9.9:22815", way=way
    )  # type: ignore[arg-type]


def test_a_master_that_answers_on_its_port_alone() -> None:
    judged = run_check(FirewallNat, *master_says("refused"), unmet("dropped"))
    assert judged.findings[0].confidence is Confidence.LIKELY
    assert "other ports than MASTER_PORT 29500, such as 22815" in judged.findings[0].summary


def test_a_service_passes_no_other_port() -> None:
    pod = Variable(name="KUBERNETES_SERVICE_HOST", value="10.96.0.1")
    assert (
        run_check(FirewallNat, *master_says("store"), unmet("dropped"), pod).findings[0].confidence
        is Confidence.POSSIBLE
    )


def test_an_address_that_neither_library_uses_may_be_closed() -> None:
    known, used = {"uses": ("host",)}, {"address": "10.1.0.2", "uses": ("nccl", "gloo")}
    facts = [*hosts("a", "b"), tried("a", "b", "dropped", **known), tried("a", "b", **used), tried("b", "a")]
    assert run_check(FirewallNat, *facts).findings == ()


def test_a_master_that_refuses_both_has_not_started() -> None:
    assert run_check(FirewallNat, *master_says("refused"), unmet("refused")).findings == ()


def test_a_silent_master_whose_card_answers_is_likely_filtered() -> None:
    meeting, route, answer = master_says("dropped")
    near = msgspec.structs.replace(answer, neighbour="52:54:00:12:34:56")
    assert run_check(FirewallNat, meeting, route, near, unmet("dropped")).findings[0].confidence is Confidence.LIKELY
    assert (
        run_check(FirewallNat, meeting, route, answer, unmet("dropped")).findings[0].confidence is Confidence.POSSIBLE
    )
