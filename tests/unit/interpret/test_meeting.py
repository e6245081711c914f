"""Where the ranks meet, read from the variables that launchers set."""

from __future__ import annotations

import pytest

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import Interface
from ddp_doctor.interpret.meeting import interpret, meeting, rendezvous_endpoint
from ddp_doctor.model import Facts, Subject


@pytest.mark.parametrize(
    ("environ", "hosts", "nodes"),
    [
        ({}, None, None),
        ({"RANK": "0", "WORLD_SIZE": "2"}, True, None),
        ({"RANK": "x"}, None, None),
        ({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, False, 2),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "SLURM_NNODES": "4"}, False, 1),
        # with torchrun's agent the store is the agent's, for all ranks of its node
        ({"RANK": "1", "GROUP_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}, True, None),
        ({"PET_NNODES": "1:4"}, None, 4),
        ({"NODE_RANK": "1"}, False, 2),
        ({"NODE_RANK": "0", "LOCAL_RANK": "1"}, False, None),
        ({"SLURM_PROCID": "0", "SLURM_NNODES": "2"}, True, 2),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, False, 1),
    ],
)
def test_who_hosts_and_how_many_nodes(environ: dict[str, str], hosts: bool | None, nodes: int | None) -> None:
    where = meeting(environ)
    assert (where.hosts, where.nodes) == (hosts, nodes)
    assert where.launched is bool(environ)


@pytest.mark.parametrize(
    ("text", "port"), [("29500", 29500), (" 29500 ", 29500), ("", None), ("0", None), ("70000", None), ("x", None)]
)
def test_a_port_is_a_number_that_others_can_connect_to(text: str, port: int | None) -> None:
    assert meeting({"MASTER_PORT": text}).port == port


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({"PET_RDZV_ENDPOINT": "node1:29400", "PET_RDZV_BACKEND": "c10d"}, ("node1", "29400")),
        ({"PET_RDZV_ENDPOINT": "node1"}, ("node1", "29400")),
        ({"PET_RDZV_ENDPOINT": "[fd00::1]:7"}, ("fd00::1", "7")),
        # etcd's endpoint rightly answers HTTP
        ({"PET_RDZV_ENDPOINT": "etcd:2379", "PET_RDZV_BACKEND": "etcd-v2"}, None),
        ({}, None),
    ],
)
def test_an_endpoint_is_a_store_unless_it_is_etcd(environ: dict[str, str], endpoint: tuple[str, str] | None) -> None:
    assert rendezvous_endpoint(environ) == endpoint


def test_a_host_without_variables_is_a_plain_shell() -> None:
    node1, node2 = Subject(host="node1"), Subject(host="node2")
    facts = Facts([Interface(subject=node1, name="lo", index=1), Variable(subject=node2, name="RANK", value="1")])
    assert {fact.subject.host: fact.launched for fact in interpret(facts)} == {"node1": False, "node2": True}
