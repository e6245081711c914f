"""DDP201 dns-or-self-name: answers of glibc's resolver."""

from __future__ import annotations

import socket

from checking import run_check
from ddp_doctor_checks.rendezvous.dns_or_self_name import DnsOrSelfName

from ddp_doctor.facts.names import GlooInterface, PeerInterface, Resolution, ReverseLookup
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.model import Absent, Confidence, Severity, Stage

SHELL = Meeting()
TWO_NODES = Meeting(
    address="node1", address_variable="MASTER_ADDR", port=29500, nodes=2, nodes_because="NNODES=2", hosts=True
)
UNKNOWN_NAME = {"error": "Name or service not known", "code": socket.EAI_NONAME}
ETH0 = PeerInterface(interface="eth0", address="10.0.0.5", because="carries the default route")


def test_an_unknown_master_is_certain() -> None:
    (finding,) = run_check(
        DnsOrSelfName, TWO_NODES, ETH0, Resolution(name="node1", role="master", **UNKNOWN_NAME)
    ).findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert finding.fixes[0].commands == ("export MASTER_ADDR=10.0.0.5",)


def test_silence_of_the_resolver_is_a_hit_with_its_time() -> None:
    silent = Resolution(name="node1", role="master", error="the resolver gave no answer in 5.0 s", answered=False)
    judgement = run_check(DnsOrSelfName, TWO_NODES, silent)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert finding.confidence is Confidence.LIKELY
    assert "no answer in 5.0 s" in finding.summary


def test_a_temporary_failure_is_not_certain() -> None:
    failure = Resolution(
        name="node1", role="master", error="Temporary failure in name resolution", code=socket.EAI_AGAIN
    )
    assert run_check(DnsOrSelfName, TWO_NODES, failure).findings[0].confidence is Confidence.LIKELY


def test_an_unknown_own_name_matters_between_nodes_only() -> None:
    own = Resolution(name="node7", role="hostname", **UNKNOWN_NAME)
    assert run_check(DnsOrSelfName, SHELL, own).findings[0].severity is Severity.NOTE
    (finding,) = run_check(DnsOrSelfName, TWO_NODES, ETH0, own).findings
    assert finding.severity is Severity.ERROR
    assert finding.fixes[0].commands == ("export GLOO_SOCKET_IFNAME=eth0",)


def test_a_named_interface_makes_the_own_name_unimportant() -> None:
    own = Resolution(name="node7", role="hostname", **UNKNOWN_NAME)
    chosen = GlooInterface(chosen_by="variable", interface="eth0", address="10.0.0.5")
    assert run_check(DnsOrSelfName, TWO_NODES, own, chosen).outcome.status == "clear"


def test_names_with_addresses_stay_clear() -> None:
    names = [
        Resolution(name="node1", role="master", addresses=("10.0.0.5",)),
        Resolution(name="node7", role="hostname", addresses=("127.0.1.1",)),
    ]
    assert run_check(DnsOrSelfName, TWO_NODES, *names).outcome.status == "clear"


def test_a_resolver_that_could_not_be_asked_is_unknown() -> None:
    assert run_check(DnsOrSelfName, TWO_NODES, Absent(kind="Resolution", status="crashed")).outcome.status == "unknown"


SILENT_ENDS = ReverseLookup(address="::ffff:127.0.0.1", seconds=5.0, answered=False)


def test_hit_a_resolver_that_is_silent_about_addresses() -> None:
    (finding,) = run_check(DnsOrSelfName, TWO_NODES, ETH0, SILENT_ENDS).findings
    assert finding.severity is Severity.WARNING and finding.confidence is Confidence.LIKELY
    assert finding.fixes[0].commands == ('export RES_OPTIONS="timeout:1 attempts:1"',)


def test_it_is_an_error_where_trial_ranks_stood_in_the_connect() -> None:
    stuck = TrialRank(rank=0, world_size=2, backend="gloo", stage=Stage.STORE_CONNECT, outcome="timeout")
    (finding,) = run_check(DnsOrSelfName, TWO_NODES, ETH0, SILENT_ENDS, stuck).findings
    assert finding.severity is Severity.ERROR


def test_an_address_without_a_name_stays_clear() -> None:
    answered = ReverseLookup(address="::ffff:127.0.0.1", error="Name or service not known", seconds=0.1)
    own = Resolution(name="node7", role="hostname", addresses=("10.0.0.5",))
    assert run_check(DnsOrSelfName, TWO_NODES, ETH0, own, answered).outcome.status == "clear"
