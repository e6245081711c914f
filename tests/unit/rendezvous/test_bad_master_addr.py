"""DDP204 bad-master-addr: values seen in public reports, and addresses that really lead elsewhere or back."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.rendezvous.bad_master_addr import BadMasterAddr, wrong_address, wrong_port

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.rendezvous import Meeting, Port, SelfReach
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
