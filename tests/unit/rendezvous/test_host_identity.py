"""DDP203 host-identity: NCCL_HOSTID exported for a whole job."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.rendezvous.host_identity import HostIdentity

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Absent, Severity, Subject

TWO_NODES = Meeting(nodes=2, nodes_because="NNODES=2")
HERE = Subject(host="node7.cluster")


def test_one_value_for_several_nodes_is_a_hit() -> None:
    judgement = run_check(HostIdentity, TWO_NODES, Variable(subject=HERE, name="NCCL_HOSTID", value="0x1"))
    assert judgement.outcome.status == "hit"
    assert judgement.findings[0].severity is Severity.WARNING


def test_the_own_name_or_an_overridden_value_stays_clear() -> None:
    own = Variable(subject=HERE, name="NCCL_HOSTID", value="node7-gpu")
    overridden = Variable(subject=HERE, name="NCCL_HOSTID", value="0x1", in_effect=False)
    assert run_check(HostIdentity, TWO_NODES, own, overridden).outcome.status == "clear"


def test_one_node_is_not_judged() -> None:
    variable = Variable(subject=HERE, name="NCCL_HOSTID", value="0x1")
    assert run_check(HostIdentity, Meeting(nodes=1), variable).outcome.status == "not-applicable"


def test_without_the_conf_files_it_is_unknown() -> None:
    absent = Absent(kind="Variable", status="timeout", reason="/etc/nccl.conf: no answer in 5.0 s")
    assert run_check(HostIdentity, TWO_NODES, absent).outcome.status == "unknown"
