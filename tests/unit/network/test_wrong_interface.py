"""DDP301 wrong-interface: what NCCL and Gloo choose, against what other nodes can reach."""

from __future__ import annotations

import msgspec
from checking import run_check
from ddp_doctor_checks.network.wrong_interface import WrongInterface
from path_facts import hosts, listener, tried

from ddp_doctor.facts.names import (
    GlooInterface,
    Interface,
    NcclInterface,
    NcclSockets,
    PeerInterface,
    UnreachableInterface,
)
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Absent, Confidence, Severity

SHELL = Meeting()
ONE_NODE = Meeting(nodes=1, nodes_because="WORLD_SIZE=2, LOCAL_WORLD_SIZE=2")
TWO_NODES = Meeting(nodes=2, nodes_because="NNODES=2")
ETH0 = Interface(name="eth0", index=3, addresses=("10.0.0.5",), up=True, running=True, device="physical")
DOCKER0 = Interface(name="docker0", index=2, addresses=("172.17.0.1",), up=True, running=True, device="bridge")
PEER = PeerInterface(interface="eth0", address="10.0.0.5", because="carries the default route")
BRIDGE = UnreachableInterface(interface="docker0", why="which is a bridge for containers")
ON_DOCKER0 = NcclInterface(version="2.27.5", interface="docker0", address="172.17.0.1", family="inet", ifname="^lo")
SOCKETS = NcclSockets(interfaces=("docker0", "eth0"), version="2.27.5", ifname="^lo")
NODE = (ETH0, DOCKER0, PEER, BRIDGE)


def test_a_name_that_matches_nothing_is_certain() -> None:
    asked = NcclInterface(version="2.27.5", error="Bootstrap : no socket interface found", ifname=" eth0")
    judgement = run_check(WrongInterface, SHELL, *NODE, asked, NcclSockets(ifname=" eth0", version="2.27.5"))
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert "' eth0'" in finding.summary and "blank" in finding.summary
    assert finding.fixes[0].commands == ("export NCCL_SOCKET_IFNAME='=eth0'",)


def test_the_rule_alone_only_warns() -> None:
    (finding,) = run_check(WrongInterface, SHELL, *NODE, NcclSockets(ifname="eth9")).findings
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.LIKELY)


def test_a_container_bridge_matters_by_the_number_of_nodes() -> None:
    facts = (*NODE, ON_DOCKER0, SOCKETS)
    severities = [run_check(WrongInterface, each, *facts).findings[0].severity for each in (SHELL, ONE_NODE, TWO_NODES)]
    assert severities == [Severity.WARNING, Severity.NOTE, Severity.ERROR]


def test_nccls_own_choice_is_right_on_one_node() -> None:
    chosen = msgspec.structs.replace(ON_DOCKER0, ifname=None)
    sockets = msgspec.structs.replace(SOCKETS, ifname=None)
    assert run_check(WrongInterface, SHELL, *NODE, chosen, sockets).outcome.status == "clear"
    assert run_check(WrongInterface, TWO_NODES, *NODE, chosen, sockets).outcome.status == "hit"


def test_a_bridge_among_several_is_a_warning_between_nodes() -> None:
    chosen = NcclInterface(version="2.27.5", interface="eth0", address="10.0.0.5", family="inet")
    sockets = NcclSockets(interfaces=("eth0", "docker0"), version="2.27.5")
    (finding,) = run_check(WrongInterface, TWO_NODES, *NODE, chosen, sockets).findings
    assert finding.severity is Severity.WARNING
    assert "eth0 and also docker0" in finding.summary
    assert run_check(WrongInterface, SHELL, *NODE, chosen, sockets).outcome.status == "clear"


def test_another_network_than_the_way_to_the_master_is_normal() -> None:
    ib0 = Interface(name="ib0", index=4, addresses=("10.1.0.5",), up=True, running=True, device="physical")
    chosen = NcclInterface(version="2.27.5", interface="ib0", address="10.1.0.5", family="inet")
    sockets = NcclSockets(interfaces=("ib0",), version="2.27.5")
    assert run_check(WrongInterface, TWO_NODES, ETH0, ib0, PEER, chosen, sockets).outcome.status == "clear"


def test_gloos_names_are_exact() -> None:
    missing = GlooInterface(chosen_by="variable", error="Unable to find address for: eth")
    (finding,) = run_check(WrongInterface, SHELL, *NODE, missing).findings
    assert finding.confidence is Confidence.CERTAIN
    assert finding.fixes[0].commands == ("export GLOO_SOCKET_IFNAME=eth0",)


def test_a_hostname_on_loopback_is_not_told_twice() -> None:
    lo = Interface(
        name="lo", index=1, addresses=("127.0.0.1",), up=True, running=True, loopback=True, device="loopback"
    )
    loopback = UnreachableInterface(interface="lo", why="which is loopback")
    by_name = GlooInterface(chosen_by="hostname", interface="lo", address="127.0.1.1")
    assert run_check(WrongInterface, TWO_NODES, lo, ETH0, PEER, loopback, by_name).outcome.status == "clear"
    by_variable = GlooInterface(chosen_by="variable", interface="lo", address="127.0.0.1")
    assert run_check(WrongInterface, TWO_NODES, lo, ETH0, PEER, loopback, by_variable).outcome.status == "hit"
    assert run_check(WrongInterface, SHELL, lo, ETH0, PEER, loopback, by_variable).outcome.status == "clear"


def test_a_libnccl_without_an_answer_is_unknown() -> None:
    absent = Absent(kind="NcclInterface", status="timeout", reason="no answer in 5.0 s")
    assert run_check(WrongInterface, SHELL, ETH0, PEER, absent).outcome.status == "unknown"


BRIDGE = {"address": "172.17.0.1", "uses": ("gloo",), "port": 41000}


def test_an_address_that_others_do_not_reach() -> None:
    facts = [*hosts("a", "b"), listener("b", interface="docker0", **BRIDGE)]
    facts += [tried("a", "b", uses=("host",)), tried("b", "a"), tried("a", "b", "dropped", **BRIDGE)]
    (found,) = run_check(WrongInterface, *facts).findings
    assert found.confidence is Confidence.CERTAIN and found.ranks == (1,)
    assert found.summary == "Gloo of b will listen on 172.17.0.1 (docker0), where a gets no answer"


def test_an_address_that_the_others_have_themselves_is_one_finding() -> None:
    facts = [
        *hosts("a", "b"),
        listener("a", interface="docker0", **BRIDGE),
        listener("b", interface="docker0", **BRIDGE),
    ]
    facts += [tried("a", "b", "wrong-host", own=True, **BRIDGE), tried("b", "a", "wrong-host", own=True, **BRIDGE)]
    (found,) = run_check(WrongInterface, *facts).findings
    assert found.ranks == (0, 1) and "comes back to oneself" in found.summary


def test_a_path_that_is_filtered_is_no_wrong_interface() -> None:
    """The host's one address answers nobody: that is DDP302."""
    facts = [*hosts("a", "b"), tried("a", "b", "dropped"), tried("b", "a")]
    assert run_check(WrongInterface, *facts).findings == ()
