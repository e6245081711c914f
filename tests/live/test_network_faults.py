"""Faults of the network and the launch between hosts, each made for real: who has to say what, written before it ran.

`by` is who says it: `report` is rank 0's one report on all, `line` the one of a host that cannot be merged, `each` what every
host says by itself. `hosts` have to be named, `words` stand in the summary in this order, `ranks` are the finding's.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import nodes
import pytest
from nodes import Node, Said, Started

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(nodes.missing()), reason=nodes.missing())]
MOST_SECONDS = 20.0
LET_BACK = ("iif lo accept", "ct state established,related accept")
EPHEMERAL = "tcp dport 32768-60999 ct state new"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2")
AGENT = {
    "static": ("--master-addr=10.7.0.1", "--master-port=29500"),
    "c10d": ("--rdzv-backend=c10d", "--rdzv-endpoint=10.7.0.1:29400", "--rdzv-id=one"),
}
NOWHERE = "nameserver 10.7.0.99\n"
"""A nameserver that no host is."""


def nothing(hosts: Sequence[Node]) -> None:
    """The healthy network."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """How it is made, and what has to be said. No `id`: nothing at warning or above."""

    name: str
    make: Callable[[Sequence[Node]], None] = nothing
    id: str = ""
    hosts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    by: Literal["report", "line", "each"] = "report"
    count: int = 2
    net: dict[str, Any] = {}
    started: dict[str, Any] = {}


def firewall(place: int, *rules: str, chain: str = "input") -> Callable[[Sequence[Node]], None]:
    """Rules on one host."""
    return lambda hosts: hosts[place].firewall(*rules, chain=chain)


def decoy(name: str, address: str, kind: str, *places: int) -> Callable[[Sequence[Node]], None]:
    """One more interface on these hosts."""

    def make(hosts: Sequence[Node]) -> None:
        for place in places:
            hosts[place].decoy(name, address, kind)

    return make


def decoys(hosts: Sequence[Node]) -> None:
    """All kinds of them everywhere, the bridges with the same addresses."""
    for place, node in enumerate(hosts):
        node.decoy("docker0", "172.17.0.1/16")
        node.decoy("br-4f1a", "172.18.0.1/16")
        node.decoy("virbr0", "192.168.122.1/24")
        node.decoy("tailscale0", f"100.64.0.{place + 1}/32", "tunnel")
        node.decoy("usb0", f"169.254.3.{place + 1}/16", "link")


def named(place: int, text: str) -> Callable[[Sequence[Node]], None]:
    """Another /etc/hosts on one host."""
    return lambda hosts: hosts[place].names(text)


def silent_resolver(hosts: Sequence[Node]) -> None:
    """On node1."""
    hosts[1].names("")
    hosts[1].resolver(NOWHERE)


def on_a_decoy(hosts: Sequence[Node]) -> None:
    """The name of node1 is the address of its bridge."""
    hosts[1].decoy("docker0", "172.17.0.1/16")
    hosts[1].names("172.17.0.1 node1\n10.7.0.1 node0\n")


def of_node1(**variables: str) -> dict[str, Any]:
    """These variables for the ranks of node1 alone."""
    return {"environ_of": {1: variables}}


FAULTS = (
    Fault(name="healthy"),
    Fault(name="healthy-four-hosts", count=4),
    Fault(name="healthy-two-ranks-each", started={"local": 2}),
    Fault(name="healthy-ipv6-only", net={"v4": False, "v6": True}),
    Fault(name="healthy-both-families", net={"v6": True}),
    Fault(name="healthy-behind-a-firewall-that-lets-the-hosts-in", make=lambda hosts: [
        node.firewall(*LET_BACK, "ip saddr 10.7.0.0/24 accept", "meta l4proto tcp drop") for node in hosts
    ] and None),
    Fault(name="healthy-with-decoys", make=decoys),
    Fault(
        name="master-port-dropped", make=firewall(0, "tcp dport 29500 drop"),
        id="DDP302", hosts=("node0", "node1"), words=("MASTER_PORT 29500 of node0", "closed to node1", "dropped"), ranks=(0,),
    ),
    Fault(
        name="master-port-rejected", make=firewall(0, "iif != lo tcp dport 29500 reject with tcp reset"),
        id="DDP302", hosts=("node0", "node1"), words=("MASTER_PORT 29500 of node0", "closed to node1", "rejected"), ranks=(0,),
    ),
    Fault(
        name="master-port-prohibited", make=firewall(0, "iif != lo tcp dport 29500 reject with icmpx type admin-prohibited"),
        id="DDP302", hosts=("node0", "node1"), words=("MASTER_PORT 29500 of node0", "closed to node1", "rejected"), ranks=(0,),
    ),
    Fault(
        name="ephemeral-ports-into-node1", make=firewall(1, f"{EPHEMERAL} drop"),
        id="DDP302", hosts=("node0", "node1"), words=("from node0 to node1 is dropped",), ranks=(1,),
    ),
    Fault(
        name="ephemeral-ports-into-node0", make=firewall(0, f"{EPHEMERAL} drop"),
        id="DDP302", hosts=("node0", "node1"), words=("from node1 to node0 is dropped",), ranks=(0,),
    ),
    Fault(
        name="ephemeral-ports-into-one-of-four", make=firewall(2, f"{EPHEMERAL} drop"), count=4,
        id="DDP302", hosts=("node2",), words=("from node0, node1, node3 to node2",), ranks=(2,),
    ),
    Fault(
        name="ephemeral-ports-out-of-one-of-four", make=firewall(2, f"{EPHEMERAL} drop", chain="output"), count=4,
        id="DDP302", hosts=("node2",), words=("from node2 to node0, node1, node3",), ranks=(2,),
    ),
    Fault(
        name="between-two-of-four", make=firewall(2, f"ip saddr 10.7.0.4 {EPHEMERAL} drop"), count=4,
        id="DDP302", hosts=("node2", "node3"), words=("from node3 to node2",), ranks=(2,),
    ),
    Fault(
        name="one-direction-only", make=firewall(1, *LET_BACK, "meta l4proto tcp drop"),
        id="DDP302", hosts=("node0", "node1"), words=("from node0 to node1",), ranks=(1,),
    ),
    Fault(
        name="nothing-but-the-master-port",
        make=firewall(0, *LET_BACK, "tcp dport { 22, 29500 } accept", "meta l4proto tcp drop"),
        by="line", id="DDP302", words=("from node1 to 10.7.0.1", "other ports than MASTER_PORT"),
    ),
    Fault(
        name="nothing-at-all-from-node1", make=firewall(0, "ip saddr 10.7.0.2 drop"),
        by="line", id="DDP302", words=("from node1", "10.7.0.1", "dropped"),
    ),
    *(
        Fault(
            name=f"gloo-of-node1-on-{name}", make=decoy(name, address, kind, 1), started=of_node1(GLOO_SOCKET_IFNAME=name),
            id="DDP301", hosts=("node1",), words=("Gloo of node1", name), ranks=(1,),
        )
        for name, address, kind in (
            ("docker0", "172.17.0.1/16", "bridge"), ("br-4f1a", "172.18.0.1/16", "bridge"),
            ("virbr0", "192.168.122.1/24", "bridge"), ("tailscale0", "100.64.0.2/32", "tunnel"),
            ("usb0", "169.254.3.1/16", "link"), ("eth1", "10.9.0.2/24", "link"),
        )
    ),
    Fault(
        name="nccl-of-node1-on-a-bridge", make=decoy("br-4f1a", "172.18.0.1/16", "bridge", 1),
        started=of_node1(NCCL_SOCKET_IFNAME="br-4f1a"),
        id="DDP301", hosts=("node1",), words=("NCCL of node1", "br-4f1a"), ranks=(1,),
    ),
    Fault(
        name="one-bridge-address-on-both", make=decoy("docker0", "172.17.0.1/16", "bridge", 0, 1),
        started={"environ": {"GLOO_SOCKET_IFNAME": "docker0"}},
        id="DDP301", hosts=("node0", "node1"), ranks=(0, 1),
        words=("Gloo of node0, node1", "172.17.0.1", "comes back to oneself"),
    ),
    Fault(
        name="name-of-node1-on-a-decoy", make=on_a_decoy,
        id="DDP301", hosts=("node1",), words=("Gloo of node1", "docker0"), ranks=(1,),
    ),
    Fault(
        name="name-of-node1-on-loopback", make=named(1, "127.0.1.1 node1\n10.7.0.1 node0\n"),
        id="DDP202", hosts=("node1",), words=("node1", "127.0.1.1"),
    ),
    Fault(
        name="ipv6-only-node1-of-an-ipv4-master", net={"v6": True, "v6_only_on": (1,)},
        by="line", id="DDP303", words=("10.7.0.1 needs IPv4",),
    ),
    Fault(
        name="gloo-of-node0-on-ipv6-and-node1-without", make=named(0, "fd07::1 node0\n10.7.0.2 node1\n"),
        net={"v6": True, "v4_only_on": (1,)},
        id="DDP303", hosts=("node0", "node1"), words=("Gloo of node0", "fd07::1", "node1 has no IPv6"),
    ),
    Fault(
        name="localhost-everywhere", started={"master": "localhost"},
        by="each", id="DDP111", words=("MASTER_ADDR=localhost",),
    ),
    Fault(name="silent-resolver", make=silent_resolver, id="DDP201", hosts=("node1",), words=("did not answer", "node1")),
    Fault(
        name="silent-resolver-and-a-named-master", make=silent_resolver, started={"master": "node0"},
        by="line", id="DDP201", words=("MASTER_ADDR 'node0' does not resolve on node1",),
    ),
)  # fmt: skip
OFTEN = ("healthy", "ephemeral-ports-into-node1", "one-bridge-address-on-both")
"""Those that every run of the tests makes."""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, id=each.name, marks=[] if each.name in OFTEN else [pytest.mark.slow]) for each in FAULTS],
)
def test_what_is_said(fault: Fault, tmp_path: Path) -> None:
    with nodes.network(tmp_path / "net", fault.count, **fault.net) as hosts:
        fault.make(hosts)
        said = Started(hosts, "--format", "json", **fault.started).said()
        assert [node.left_behind for node in hosts] == [[]] * fault.count
    assert all(each.seconds < MOST_SECONDS for each in said), [each.seconds for each in said]
    if not fault.id:
        assert said[0].found() == {} and {code for each in said for code in each.codes} == {0}, said
    elif fault.by == "report":
        found = said[0].found()
        assert list(found) == [fault.id], found
        assert said[0].report["verdict"]["finding"] == fault.id
        _right(fault, found[fault.id])
        assert {code for each in said for code in each.codes} == {1} and not any(each.out for each in said[1:])
    elif fault.by == "each":
        for node, each in zip(hosts, said, strict=True):
            assert each.report["verdict"]["finding"] == fault.id
            assert each.found()[fault.id]["hosts"] == [node.name]
            _right(fault, each.found()[fault.id])
    else:
        assert said[1].codes == (1,)
        _right(fault, {"summary": _line(said[1]), "hosts": [], "ranks": []})
        assert fault.id in _line(said[1]) or said[1].report["verdict"]["finding"] == fault.id


@pytest.mark.slow
@pytest.mark.skipif("DDP_DOCTOR_TEST_CUDA_PYTHON" not in os.environ, reason="DDP_DOCTOR_TEST_CUDA_PYTHON is not set")
def test_the_interface_that_libnccl_chooses_is_tried(tmp_path: Path) -> None:
    python = ("--format", "json", "--python", os.environ["DDP_DOCTOR_TEST_CUDA_PYTHON"])
    with nodes.network(tmp_path / "net", 2) as hosts:
        assert Started(hosts, *python).said()[0].found() == {}
        hosts[1].decoy("br-4f1a", "172.18.0.1/16")
        found = Started(hosts, *python, **of_node1(NCCL_SOCKET_IFNAME="br")).said()[0].found()
        assert list(found) == ["DDP301"] and found["DDP301"]["ranks"] == [1]
        assert found["DDP301"]["summary"].startswith("NCCL of node1 will listen on 172.18.0.1 (br-4f1a)")


@pytest.mark.slow
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_two_agents_of_torchrun(tmp_path: Path, rendezvous: str) -> None:
    """Their own port is held by the agent, and is left alone."""
    with nodes.network(tmp_path / "net", 2) as hosts:
        started = [
            nodes.started(node, (*TORCHRUN, *(AGENT[rendezvous]), f"--node-rank={place}", "-m", "ddp_doctor", "run"))
            for place, node in enumerate(hosts)
        ]
        said = [process.communicate(timeout=90)[0] for process in started]
        assert [process.returncode for process in started] == [0, 0]
    assert "4 of 4 ranks merged" in " ".join(said[0].split()) and "no problem found" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("local", [1, 2])
def test_a_host_that_is_stopped_is_named(tmp_path: Path, local: int) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        job = Started(hosts, "--format", "json", local=local)
        _wait_for_meeting(hosts[0], hosts[1])
        job.stop(1)
        said = job.said(patience=25.0)
    found = said[0].found()
    assert list(found) == ["DDP608"] and said[0].seconds < MOST_SECONDS, (said[0].seconds, found)
    assert found["DDP608"]["hosts"] == ["node1"] and found["DDP608"]["ranks"] == [each + local for each in range(local)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_one_stopped_rank_of_a_host_is_named(tmp_path: Path, number: int) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        job = Started(hosts, "--format", "json", local=2)
        _wait_for_meeting(hosts[0], hosts[1])
        job.signal(job.processes[1][number], signal.SIGSTOP)
        said = job.said(patience=25.0)
    found = said[0].found()
    assert list(found) == ["DDP608"] and said[0].seconds < MOST_SECONDS, (said[0].seconds, found)
    assert found["DDP608"]["hosts"] == ["node1"] and found["DDP608"]["ranks"] == [2 + number]


@pytest.mark.slow
def test_the_host_of_rank_zero_is_stopped(tmp_path: Path) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        job = Started(hosts, "--format", "json")
        _wait_for_meeting(hosts[0], hosts[1])
        job.stop(0)
        said = job.said(patience=25.0)
    assert "DDP608 rank-stopped: rank 0 on node0 came and then fell silent" in said[1].errors


@pytest.mark.slow
def test_a_host_whose_link_goes_down_is_named(tmp_path: Path) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        job = Started(hosts, "--format", "json")
        _wait_for_meeting(hosts[0], hosts[1])
        hosts[1].run("ip link set eth0 down")
        said = job.said(patience=25.0)
    found = said[0].found()
    assert list(found) == ["DDP101"] and said[0].seconds < MOST_SECONDS, (said[0].seconds, found)
    assert found["DDP101"]["hosts"] == ["node1"] and "the network lost the host" in found["DDP101"]["summary"]


@pytest.mark.slow
def test_a_container_behind_its_host_is_translated(tmp_path: Path) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts, nodes.contained(tmp_path / "c", hosts[1]) as inside:
        said = Started([hosts[0], inside], "--format", "json").said()
    found = said[0].found()
    assert list(found) == ["DDP302"] and said[0].seconds < MOST_SECONDS, (said[0].seconds, found)
    assert "node1c is behind address translation" in found["DDP302"]["summary"]
    assert found["DDP302"]["ranks"] == [1] and "docker run --network=host" in str(found["DDP302"]["fixes"])


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["--dport 29500", "--dport 32768:60999"])
def test_the_printed_rule_mends_a_firewall(tmp_path: Path, rule: str) -> None:
    place = 0 if "29500" in rule else 1
    with nodes.network(tmp_path / "net", 2) as hosts:
        hosts[place].run(f"iptables -A INPUT -i eth0 -p tcp {rule} -m state --state NEW -j DROP")
        found = Started(hosts, "--format", "json").said()[0].found()
        assert list(found) == ["DDP302"] and found["DDP302"]["confidence"] == "certain"
        hosts[place].apply(found["DDP302"]["fixes"][0]["commands"][0])
        assert Started(hosts, "--format", "json").said()[0].found() == {}


@pytest.mark.slow
def test_the_printed_variable_mends_a_wrong_interface(tmp_path: Path) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        on_a_decoy(hosts)
        found = Started(hosts, "--format", "json").said()[0].found()
        name, _, value = found["DDP301"]["fixes"][0]["commands"][0].removeprefix("export ").partition("=")
        assert Started(hosts, "--format", "json", **of_node1(**{name: value})).said()[0].found() == {}


def _wait_for_meeting(host: Node, guest: Node) -> None:
    """Until the guest is connected, and has had a moment to say who it is."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(guest.addresses[0].split(".")))
    for _ in range(300):
        lines = (line.split() for line in host.run("cat /proc/net/tcp").splitlines())
        if any(fields[2].startswith(wanted) and fields[3] == "01" for fields in lines):
            break
        time.sleep(0.05)
    time.sleep(0.7)


def _right(fault: Fault, finding: dict[str, Any]) -> None:
    place = 0
    for word in fault.words:
        assert word in finding["summary"][place:], finding["summary"]
        place = finding["summary"].index(word, place)
    assert set(fault.hosts) <= set(finding["hosts"]), finding
    if fault.ranks is not None:
        assert tuple(finding["ranks"]) == fault.ranks, finding


def _line(said: Said) -> str:
    """What a host that could not be merged says, in one line or as a report of its own."""
    return (
        said.errors + " ".join(each["summary"] for each in said.report["findings"])
        if said.out.startswith("{")
        else said.errors
    )
