"""DDP112 port-in-use: who holds the port, and whether that is a fault."""

from __future__ import annotations

import msgspec
import pytest
from checking import run_check
from ddp_doctor_checks.launch.port_in_use import PortInUse

from ddp_doctor.facts.launch import Ancestor, Variable
from ddp_doctor.facts.names import Interface, Resolution
from ddp_doctor.facts.rendezvous import Meeting, Port, PortOwner, StoreAnswer
from ddp_doctor.model import Absent, Confidence, Severity

SHELL = Meeting()
RANK_0 = Meeting(
    address="127.0.0.1", address_variable="MASTER_ADDR", port=29500, hosts=True, hosts_because="RANK=0", launched=True
)
TAKEN = Port(port=29500, named=True, bindable=False, errno=98, error="Address already in use", next_free=29501)
DEFAULT = msgspec.structs.replace(TAKEN, named=False)
OWNER = PortOwner(
    port=29500,
    address="::",
    listening=True,
    user="kim",
    same_user=True,
    pid=77,
    command="redis-server",
    arguments=("redis-server", "*:29500"),
    parent=12,
    parent_command="bash",
    nccl_loaded=False,
)
WORKER = msgspec.structs.replace(
    OWNER, command="pt_data_worker", arguments=("python", "train.py"), parent=1, parent_command="systemd"
)
STORE = StoreAnswer(name="127.0.0.1", address="127.0.0.1", port=29500, verdict="store", local=True, joined=2)


def test_another_program_on_rank_0s_port_is_a_hit() -> None:
    judgement = run_check(PortInUse, RANK_0, TAKEN, OWNER)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert "PID 77 (redis-server *:29500)" in finding.summary
    assert finding.fixes[0].commands == ("export MASTER_PORT=29501",)


def test_a_shell_is_only_warned_of_the_default_port() -> None:
    (finding,) = run_check(PortInUse, SHELL, DEFAULT, OWNER).findings
    assert finding.severity is Severity.WARNING
    assert "torchrun's default" in finding.summary


def test_an_orphan_is_named_as_left_over_and_its_pid_is_the_fix() -> None:
    (finding,) = run_check(PortInUse, RANK_0, TAKEN, WORKER).findings
    assert "left over from an earlier run" in finding.summary
    assert finding.fixes[0].commands == ("kill 77",)


def test_a_store_whose_launcher_is_gone_is_left_over_too() -> None:
    orphan = msgspec.structs.replace(OWNER, command="python", parent=1, session_leader_alive=False)
    (finding,) = run_check(PortInUse, RANK_0, TAKEN, orphan, STORE).findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.LIKELY)


@pytest.mark.parametrize("command", ["pt_elastic", "python"])
def test_a_running_job_is_a_note(command: str) -> None:
    owner = msgspec.structs.replace(OWNER, command=command)
    (finding,) = run_check(PortInUse, RANK_0, TAKEN, owner, STORE).findings
    assert finding.severity is Severity.NOTE
    assert finding.fixes[0].commands == ("ddp-doctor attach 77",)


def test_the_agent_that_started_this_rank_is_right() -> None:
    agent = msgspec.structs.replace(OWNER, command="pt_elastic")
    above = Ancestor(depth=1, pid=77, command="pt_elastic")
    assert run_check(PortInUse, RANK_0, TAKEN, agent, above).outcome.status == "clear"


def test_the_store_of_another_slurm_job_is_a_hit() -> None:
    owner = msgspec.structs.replace(OWNER, command="python", job={"SLURM_JOB_ID": "41"})
    ours = Variable(name="SLURM_JOB_ID", value="42")
    assert run_check(PortInUse, RANK_0, TAKEN, owner, STORE, ours).findings[0].severity is Severity.ERROR


def test_an_owner_of_another_user_is_said_to_be_one() -> None:
    hidden = PortOwner(port=29500, address="0.0.0.0", listening=True, user="lee")
    (finding,) = run_check(PortInUse, RANK_0, TAKEN, hidden).findings
    assert "a process of lee" in finding.summary
    assert "ss -tanp" in finding.fixes[1].commands[0]


def test_a_free_port_stays_clear() -> None:
    assert run_check(PortInUse, RANK_0, msgspec.structs.replace(TAKEN, bindable=True)).outcome.status == "clear"


def test_a_port_of_this_node_is_nothing_to_a_job_that_meets_elsewhere() -> None:
    meeting = Meeting(address="node1", address_variable="MASTER_ADDR", port=29500)
    there = Resolution(name="node1", role="master", addresses=("10.0.0.1",))
    eth0 = Interface(name="eth0", index=2, addresses=("10.0.0.5",))
    assert run_check(PortInUse, meeting, TAKEN, OWNER, there, eth0).outcome.status == "clear"
    assert run_check(PortInUse, msgspec.structs.replace(RANK_0, hosts=False), TAKEN).outcome.status == "not-applicable"


def test_a_port_that_could_not_be_tried_is_unknown() -> None:
    assert run_check(PortInUse, RANK_0, Absent(kind="Port", status="timeout")).outcome.status == "unknown"
