"""DDP204 bad-master-addr: values seen in public reports, and addresses that really lead elsewhere or back."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.rendezvous.bad_master_addr import BadMasterAddr, wrong_address, wrong_port
from ddp_doctor_checks.rendezvous.bad_master_addr_text import bare_address
from ddp_doctor_checks.rendezvous.dns_or_self_name import DnsOrSelfName

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import Interface, Resolution, Route
from ddp_doctor.facts.rendezvous import Meeting, Port, SelfReach, StoreAnswer
from ddp_doctor.model import Absent, Confidence

RANK_0 = Meeting(
    address="10.9.9.9", address_variable="MASTER_ADDR", port=29500, hosts=True, hosts_because="RANK=0", launched=True
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        " node1",
        "node1\n",
        "/root/env.bashrc",
        "http://node1",
        "node1:29500",
        "node 1",
        "'node1'",
        "a,b",
        "[fd00::2]",
        "{x}",
        "tcp://10.0.0.1:29500",
        "a..b",
        "x" * 64,
        "10.0.0.256",
        "fe80:1",
    ],
)
def test_what_cannot_be_an_address_is_a_hit(text: str) -> None:
    judgement = run_check(BadMasterAddr, RANK_0, Variable(name="MASTER_ADDR", value=text))
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert finding.summary.startswith("MASTER_ADDR ")
    assert repr(text) in finding.evidence[0].value


@pytest.mark.parametrize(
    "text", ["node1", "node-1.cluster.local.", "my_pod", "10.0.0.1", "::1", "fe80::1%eth0", "fd00::2"]
)
def test_names_and_addresses_are_right(text: str) -> None:
    assert wrong_address(text) == ""


@pytest.mark.parametrize("text", ["10.0.0.1:29500", "tcp://10.0.0.1", "[::1]", "{x}"])
def test_what_is_no_name_is_not_said_to_have_no_answer(text: str) -> None:
    asked = Resolution(name=text, role="master", error="Name or service not known", code=-2)
    meeting = Meeting(address=text, address_variable="MASTER_ADDR")
    assert run_check(DnsOrSelfName, meeting, asked).findings == ()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("10.0.0.1:29500", "10.0.0.1"),
        ("tcp://node1:29500/", "node1"),
        ("[::1]", "::1"),
        ("http://[::1]:80", "::1"),
        ("{x}", ""),
        ("a b", ""),
        ("", ""),
    ],
)
def test_the_fix_is_the_host_that_is_in_it(text: str, host: str) -> None:
    assert bare_address(text) == host


@pytest.mark.parametrize("endpoint", ["tcp://node1:29400", "{x}:29400"])
def test_a_rendezvous_endpoint_that_names_no_host_is_a_hit(endpoint: str) -> None:
    (finding,) = run_check(BadMasterAddr, Meeting(), Variable(name="PET_RDZV_ENDPOINT", value=endpoint)).findings
    assert finding.summary.startswith("the host in PET_RDZV_ENDPOINT ")


RANK_1 = Meeting(address="10.9.9.9", address_variable="MASTER_ADDR", port=29500, hosts=False, hosts_because="RANK=1")
THERE = Resolution(name="10.9.9.9", role="master", addresses=("10.9.9.9",))
ETH0 = Interface(name="eth0", index=2, addresses=("10.0.0.5",), up=True, running=True)
NO_WAY = Route(to="10.9.9.9", error="Network is unreachable")
WAY = Route(to="10.9.9.9", interface="eth0", local_address="10.0.0.5")


def answer(verdict: str) -> StoreAnswer:
    return StoreAnswer(name="10.9.9.9", address="10.9.9.9", port=29500, verdict=verdict)  # type: ignore[arg-type]


def test_no_route_to_rank_0_is_a_hit() -> None:
    (finding,) = run_check(BadMasterAddr, RANK_1, THERE, ETH0, NO_WAY, answer("unreachable")).findings
    assert finding.confidence is Confidence.LIKELY
    assert "no route to MASTER_ADDR=10.9.9.9" in finding.summary


@pytest.mark.parametrize("verdict", ["dropped", "unreachable"])
def test_nobody_at_the_address_is_possible(verdict: str) -> None:
    (finding,) = run_check(BadMasterAddr, RANK_1, THERE, ETH0, WAY, answer(verdict)).findings
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.explains == ()


@pytest.mark.parametrize("verdict", ["refused", "store"])
def test_an_answer_or_a_refusal_stays_clear(verdict: str) -> None:
    assert run_check(BadMasterAddr, RANK_1, THERE, ETH0, WAY, answer(verdict)).outcome.status == "clear"


@pytest.mark.parametrize("text", ["", "x", "99999", "-1", "0", "29500.5", "tcp"])
def test_what_cannot_be_a_port_is_a_hit(text: str) -> None:
    judgement = run_check(BadMasterAddr, RANK_0, Variable(name="MASTER_PORT", value=text))
    assert judgement.outcome.status == "hit"


@pytest.mark.parametrize("text", ["1", "29500", " 29500", "65535"])
def test_what_python_reads_as_a_port_is_right(text: str) -> None:
    assert wrong_port(text) == ""


def test_port_0_is_right_for_one_rank() -> None:
    alone = Meeting(address="127.0.0.1", world_size=1)
    judgement = run_check(BadMasterAddr, alone, Variable(name="MASTER_PORT", value="0"))
    assert judgement.outcome.status == "clear"


def test_a_port_that_needs_root_is_a_hit() -> None:
    port = Port(port=80, named=True, bindable=False, errno=13, error="Permission denied")
    judgement = run_check(BadMasterAddr, RANK_0, port)
    assert judgement.findings[0].summary.startswith("this user may not open MASTER_PORT 80")


@pytest.mark.parametrize(
    ("outcome", "confidence"),
    [("refused", Confidence.CERTAIN), ("elsewhere", Confidence.CERTAIN), ("dropped", Confidence.LIKELY)],
)
def test_rank_0_on_another_host_than_master_addr_is_a_hit(outcome: str, confidence: Confidence) -> None:
    reach = SelfReach(address="10.9.9.9", port=29500, outcome=outcome)  # type: ignore[arg-type]
    (finding,) = run_check(BadMasterAddr, RANK_0, reach).findings
    assert finding.confidence is confidence
    assert "RANK=0" in finding.summary


def test_an_address_that_leads_back_here_stays_clear() -> None:
    """A service address, as Kubernetes gives the first pod."""
    reached = [
        SelfReach(address="fd00::9", port=29500, outcome="unreachable", error="Network is unreachable"),
        SelfReach(address="10.9.9.9", port=29500, outcome="arrived"),
    ]
    assert run_check(BadMasterAddr, RANK_0, *reached).outcome.status == "clear"


def test_without_an_answer_it_is_unknown() -> None:
    absent = Absent(kind="SelfReach", status="timeout", reason="no answer in 5.0 s")
    assert run_check(BadMasterAddr, RANK_0, absent).outcome.status == "unknown"
