"""DDP111 master-inconsistent: loopback as the meeting point of several nodes."""

from __future__ import annotations

import msgspec
import pytest
from checking import run_check
from ddp_doctor_checks.launch.master_inconsistent import MasterInconsistent

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import PeerInterface, Resolution
from ddp_doctor.facts.rendezvous import Meeting, StoreAnswer
from ddp_doctor.model import Absent, Severity

NODE_0 = Meeting(
    address="localhost",
    address_variable="MASTER_ADDR",
    port=29500,
    nodes=2,
    nodes_because="NNODES=2",
    hosts=True,
    hosts_because="RANK=0",
)
ETH0 = PeerInterface(interface="eth0", address="10.0.0.5", because="carries the default route")


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.0.1.1", "::1", "0.0.0.0"])
def test_loopback_for_two_nodes_is_a_hit(address: str) -> None:
    judgement = run_check(MasterInconsistent, msgspec.structs.replace(NODE_0, address=address), ETH0)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert f"MASTER_ADDR={address}" in finding.summary and "NNODES=2" in finding.summary
    assert finding.fixes[0].commands == ("export MASTER_ADDR=10.0.0.5",)


def test_a_name_that_is_loopback_matters_where_rank_0_is_not() -> None:
    named = Resolution(name="node1", role="master", addresses=("127.0.1.1",))
    node_0 = msgspec.structs.replace(NODE_0, address="node1")
    assert run_check(MasterInconsistent, node_0, named).outcome.status == "clear"
    node_1 = msgspec.structs.replace(node_0, hosts=False)
    assert run_check(MasterInconsistent, node_1, named).outcome.status == "hit"


def test_one_node_stays_clear() -> None:
    assert run_check(MasterInconsistent, msgspec.structs.replace(NODE_0, nodes=1)).outcome.status == "clear"
    assert run_check(MasterInconsistent, msgspec.structs.replace(NODE_0, nodes=None)).outcome.status == "clear"


def test_a_store_that_answers_here_settles_it() -> None:
    store = StoreAnswer(name="localhost", address="127.0.0.1", port=29500, verdict="store", local=True)
    assert run_check(MasterInconsistent, NODE_0, store).outcome.status == "clear"


def test_the_first_pod_of_a_kubernetes_job_gets_a_note() -> None:
    pod = Variable(name="KUBERNETES_SERVICE_HOST", value="10.96.0.1")
    assert run_check(MasterInconsistent, NODE_0, pod).findings[0].severity is Severity.NOTE


def test_a_store_that_could_not_be_asked_is_unknown() -> None:
    far = msgspec.structs.replace(NODE_0, address="10.0.0.5")
    absent = Absent(kind="StoreAnswer", status="timeout", reason="no answer in 5.0 s")
    assert run_check(MasterInconsistent, far, absent).outcome.status == "unknown"
