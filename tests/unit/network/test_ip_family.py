"""DDP303 ip-family: NCCL_SOCKET_FAMILY and link-local IPv6."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.network.ip_family import IpFamily
from path_facts import hosts, listener, tried

from ddp_doctor.facts.names import Interface, NcclInterface, Resolution
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Absent, Confidence, Severity

TWO_NODES = Meeting(nodes=2, nodes_because="NNODES=2")
ETH0 = Interface(name="eth0", index=3, addresses=("10.0.0.5",), up=True, running=True, device="physical")
NONE = "Bootstrap : no socket interface found"


def test_a_family_that_no_interface_has_is_certain() -> None:
    asked = NcclInterface(version="2.27.5", error=NONE, socket_family="AF_INET6")
    judgement = run_check(IpFamily, Meeting(), ETH0, asked)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert finding.fixes[0].commands == ("export NCCL_SOCKET_FAMILY=AF_INET",)


def test_a_link_local_address_matters_between_nodes() -> None:
    asked = NcclInterface(version="2.27.5", interface="veth1", address="fe80::1", family="inet6")
    (finding,) = run_check(IpFamily, TWO_NODES, ETH0, asked).findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert finding.fixes[0].commands == ("export NCCL_SOCKET_FAMILY=AF_INET",)
    assert run_check(IpFamily, Meeting(), ETH0, asked).findings[0].severity is Severity.NOTE


def test_a_value_nccl_does_not_know_is_a_note() -> None:
    asked = NcclInterface(version="2.27.5", interface="eth0", address="10.0.0.5", family="inet", socket_family="IPv4")
    assert run_check(IpFamily, TWO_NODES, ETH0, asked).findings[0].severity is Severity.NOTE


def test_routable_ipv6_stays_clear() -> None:
    asked = NcclInterface(
        version="2.27.5", interface="eth0", address="fd00::2", family="inet6", socket_family="AF_INET6"
    )
    assert run_check(IpFamily, TWO_NODES, ETH0, asked).outcome.status == "clear"


def test_a_libnccl_without_an_answer_is_unknown() -> None:
    absent = Absent(kind="NcclInterface", status="crashed", reason="killed by signal 11")
    assert run_check(IpFamily, TWO_NODES, absent).outcome.status == "unknown"


def test_a_master_of_a_family_that_this_node_lacks_is_a_hit() -> None:
    meeting = Meeting(address="head", address_variable="MASTER_ADDR")
    only_v6 = Resolution(name="head", role="master", addresses=("fd00::9",))
    (finding,) = run_check(IpFamily, meeting, ETH0, only_v6).findings
    assert finding.confidence is Confidence.CERTAIN
    assert "needs IPv6" in finding.summary


def test_a_master_with_one_address_of_a_family_that_is_here_is_fine() -> None:
    meeting = Meeting(address="head", address_variable="MASTER_ADDR")
    both = Resolution(name="head", role="master", addresses=("fd00::9", "10.0.0.9"))
    assert run_check(IpFamily, meeting, ETH0, both).findings == ()
    mapped = Resolution(name="head", role="master", addresses=("::ffff:10.0.0.9",))
    assert run_check(IpFamily, meeting, ETH0, mapped).findings == ()


def test_a_loopback_interface_that_is_down_says_nothing_about_families() -> None:
    lo = Interface(name="lo", index=1, loopback=True)
    meeting = Meeting(address="127.0.0.1", address_variable="MASTER_ADDR")
    there = Resolution(name="127.0.0.1", role="master", addresses=("127.0.0.1",))
    assert run_check(IpFamily, meeting, lo, there).findings == ()


def test_an_address_of_a_family_that_the_other_host_lacks() -> None:
    v6 = {"address": "fd00::2", "uses": ("gloo",)}
    failed = tried("a", "b", "unreachable", error="Network is unreachable", **v6)
    (found,) = run_check(IpFamily, *hosts("a", "b"), listener("b", **v6), failed).findings
    assert found.summary == "Gloo of b will listen on fd00::2, and a has no IPv6 address to reach it from"


def test_a_master_of_two_families_is_reached_by_one() -> None:
    v6 = {"address": "fd00::2", "uses": ("host",)}
    failed = tried("a", "b", "unreachable", error="Network is unreachable", **v6)
    assert run_check(IpFamily, *hosts("a", "b"), listener("b", **v6), failed, tried("a", "b")).findings == ()
