"""DDP202 loopback-name: Debian's 127.0.1.1, with one node and with two."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.rendezvous.loopback_name import LoopbackName

from ddp_doctor.facts.names import GlooInterface, PeerInterface, Resolution
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Absent, Severity

NAME = Resolution(name="node7", role="hostname", addresses=("127.0.1.1",))
LOOPBACK = GlooInterface(chosen_by="hostname", interface="lo", address="127.0.1.1")
ETH0 = PeerInterface(interface="eth0", address="10.0.0.5", because="carries the default route")


def test_two_nodes_are_a_hit() -> None:
    judgement = run_check(LoopbackName, Meeting(nodes=2, nodes_because="NNODES=2"), NAME, LOOPBACK, ETH0)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert finding.severity is Severity.ERROR
    assert "127.0.1.1" in finding.summary and "NNODES=2" in finding.summary
    assert finding.fixes[0].commands == ("export GLOO_SOCKET_IFNAME=eth0",)


def test_without_a_sign_of_a_second_node_it_is_no_finding() -> None:
    one = Meeting(nodes=1, nodes_because="WORLD_SIZE=2, LOCAL_WORLD_SIZE=2")
    for meeting in (Meeting(), one):
        judgement = run_check(LoopbackName, meeting, NAME, LOOPBACK)
        assert judgement.outcome.status == "not-applicable" and not judgement.findings


def test_a_named_interface_stays_clear() -> None:
    chosen = GlooInterface(chosen_by="variable", interface="eth0", address="10.0.0.5")
    assert run_check(LoopbackName, Meeting(nodes=2), NAME, chosen).outcome.status == "clear"


def test_a_real_address_stays_clear() -> None:
    chosen = GlooInterface(chosen_by="hostname", interface="eth0", address="10.0.0.5")
    assert run_check(LoopbackName, Meeting(nodes=2), chosen).outcome.status == "clear"


def test_without_the_resolver_it_is_unknown() -> None:
    absent = Absent(kind="GlooInterface", status="timeout", reason="no answer in 5.0 s")
    assert run_check(LoopbackName, Meeting(nodes=2), absent).outcome.status == "unknown"
