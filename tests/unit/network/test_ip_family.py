"""DDP303 ip-family: NCCL_SOCKET_FAMILY and link-local IPv6."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.network.ip_family import IpFamily

from ddp_doctor.facts.names import Interface, NcclInterface
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
