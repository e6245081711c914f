"""Families of several hosts that are one job, and those that are not."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.job import Connection, Job, JobRank, Process, Task
from ddp_doctor.interpret.job import interpret
from ddp_doctor.model import Facts, Subject

PID = 7
"""The same on every host, as in containers."""


def rank(host: str, number: int, address: str = "node-a", port: str = "29500", size: int = 2, **more: Any) -> Process:
    """A rank that stands in the store."""
    variables = {"RANK": str(number), "WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": port}
    return Process(
        subject=Subject(host=host, pid=PID, start_time=1),
        parent=1,
        command="python",
        arguments=("python", "train.py"),
        state="S",
        network=4026531840,
        tasks=(Task(id=PID, name="python", state="S"), Task(id=PID + 1, name="gloo_tcp_loop", state="S")),
        set_at_start=variables,
        torch=True,
        **more,
    )


def sizes(*facts: Any) -> list[tuple[int, tuple[str, ...]]]:
    """Ranks and hosts of each job."""
    found = interpret(Facts(facts))
    return [(len(fact.ranks), fact.hosts) for fact in found if isinstance(fact, Job)]


def test_one_address_is_one_job_also_where_pids_are_equal() -> None:
    found = interpret(Facts([rank("node-a", 0), rank("node-b", 1)]))
    (job,) = [fact for fact in found if isinstance(fact, Job)]
    assert job.hosts == ("node-a", "node-b") and job.ranks == (0, 1) and job.missing == ()
    assert [fact.subject.host for fact in found if isinstance(fact, JobRank)] == ["node-a", "node-b"]


def test_other_ports_are_other_jobs() -> None:
    assert sizes(rank("node-a", 0), rank("node-b", 0, port="29501")) == [(1, ("node-a",)), (1, ("node-b",))]


def test_localhost_on_each_host_is_one_job_where_the_ranks_make_one_world() -> None:
    assert sizes(rank("node-a", 0, "localhost"), rank("node-b", 1, "localhost")) == [(2, ("node-a", "node-b"))]


def test_localhost_on_each_host_is_two_jobs_where_each_is_a_world() -> None:
    alone = [rank(host, 0, "localhost", size=1) for host in ("node-a", "node-b")]
    assert sizes(*alone) == [(1, ("node-a",)), (1, ("node-b",))]


def test_ranks_that_are_connected_are_one_job_whatever_name_they_have_for_the_store() -> None:
    first, second = rank("node-a", 0, "node-a"), rank("node-b", 1, "10.0.0.1", port="29501")
    ends = (("10.0.0.1", 29500, "10.0.0.2", 40000), ("10.0.0.2", 40000, "10.0.0.1", 29500))
    sockets = [
        Connection(
            subject=process.subject, local=local, local_port=port, peer=peer, peer_port=peer_port, state="ESTABLISHED"
        )
        for process, (local, port, peer, peer_port) in zip((first, second), ends, strict=True)
    ]
    assert sizes(first, second, *sockets) == [(2, ("node-a", "node-b"))]
    assert sizes(first, second) == [(1, ("node-a",)), (1, ("node-b",))]


def test_three_hosts_are_one_job_in_whatever_order_they_are_read() -> None:
    hosts = [rank(f"node-{number}", number, size=3) for number in range(3)]
    assert sizes(*hosts) == [(3, ("node-0", "node-1", "node-2"))]
    assert sizes(*reversed(hosts)) == [(3, ("node-2", "node-1", "node-0"))]
