"""The rendezvous on real input: servers, stores, namespaces and resolvers that really behave like that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examining import Room, apply_fix, examine_here, findings, libnccl, listening, needs_root, room
from jobs import free_port

import ddp_doctor

HANGS = Path(__file__).parent / "hangs"
TWO_NODES = {"NNODES": "2", "NODE_RANK": "0"}


def rank(number: int, port: int, address: str = "127.0.0.1") -> dict[str, str]:
    return {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)}


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Room]:
    """A room with one link, eth0 10.77.0.5, that carries the default route; this node's name has that address."""
    with room(tmp_path) as made:
        made.pair("eth0", "10.77.0.5/24")
        made.ip("route", "add", "default", "via", "10.77.0.1")
        made.replace("/etc/hosts", f"127.0.0.1 localhost\n10.77.0.5 {socket.gethostname()}\n")
        made.replace("/etc/resolv.conf", "")
        yield made


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("silent", "says nothing"),
        ("http", "speaks HTTP"),
        ("closing", "closes connections"),
        ("resetting", "closes connections"),
        ("echo", "answers \\x00"),
        ("deaf", "never accepts"),
    ],
)
def test_what_is_no_store_is_named_and_another_port_mends_it(behaviour: str, says: str) -> None:
    with listening(behaviour) as port:
        environ = rank(1, port)
        report = examine_here(environ)
        finding = findings(report)["DDP209"]
        assert says in finding["summary"] and f"PID {os.getpid()}" in finding["summary"]
        assert report["verdict"]["finding"] == "DDP209"
        assert report["tool"]["seconds"] < 5
        mended = apply_fix(finding, environ)
        assert mended["MASTER_PORT"] != environ["MASTER_PORT"]
        assert findings(examine_here(mended)) == {}


def test_without_a_rank_the_listener_explains_the_port() -> None:
    with listening("silent") as port:
        (finding,) = findings(examine_here({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})).values()
    assert finding["id"] == "DDP209"
    assert "DDP112" in finding["explains"]


def test_rank_0_cannot_open_a_held_port_and_ending_the_owner_mends_it() -> None:
    port = free_port()
    script = f"import socket, time; s = socket.create_server(('', {port})); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout and owner.stdout.readline()
        environ = rank(0, port)
        finding = findings(examine_here(environ))["DDP112"]
        assert finding["confidence"] == "certain"
        assert finding["fixes"][1]["commands"] == [f"kill {owner.pid}"]
        assert findings(examine_here(apply_fix(finding, environ, 0))) == {}
        apply_fix(finding, environ, 1)
        owner.wait(10)
    assert findings(examine_here(environ)) == {}


def test_a_left_over_data_worker_is_named_and_ended() -> None:
    port = free_port()
    started = subprocess.run(
        [sys.executable, str(HANGS / "left_over_worker.py"), str(port)], capture_output=True, check=True
    )
    pid = int(started.stdout)
    environ = rank(0, port)
    finding = findings(examine_here(environ))["DDP112"]
    if "left over" not in finding["summary"]:
        os.kill(pid, 9)
        pytest.skip("orphans are adopted by a process that is no init here")
    assert finding["fixes"][0]["commands"] == [f"kill {pid}"]
    apply_fix(finding, environ)
    deadline = time.monotonic() + 5
    while findings(examine_here(environ)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert findings(examine_here(environ)) == {}


def test_both_kinds_of_store_are_recognised_counted_and_left_whole() -> None:
    pytest.importorskip("torch")
    ports = [free_port(), free_port()]
    argv = [sys.executable, str(HANGS / "store_of_rank_0.py"), *map(str, ports)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdin and job.stdout
        try:
            assert job.stdout.readline() == "hosting\n"
            for port in ports:
                deadline = time.monotonic() + 10
                while not _answers(port) and time.monotonic() < deadline:
                    time.sleep(0.05)
                report = examine_here(rank(1, port))
                assert findings(report) == {}
                assert {"id": "DDP209", "status": "clear"}.items() <= _outcome(report, "DDP209").items()
                note = findings(examine_here(rank(0, port)), "note")["DDP112"]
                assert note["fixes"][0]["commands"] == [f"ddp-doctor attach {job.pid}"]
                assert any("a TCPStore, 1 clients joined" in each["value"] for each in _answer_of(port))
            job.stdin.write("\n")
            job.stdin.flush()
            assert {job.stdout.readline() for _ in ports} == {f"complete {port}\n" for port in ports}
            assert job.wait(20) == 0
        finally:
            job.kill()


def _outcome(report: dict[str, Any], id: str) -> dict[str, Any]:
    return next(outcome for outcome in report["outcomes"] if outcome["id"] == id)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _answer_of(port: int) -> list[dict[str, str]]:
    from ddp_doctor.facts.rendezvous import StoreAnswer
    from ddp_doctor.host import Host
    from ddp_doctor.probes.store import ask

    host = Host(10)
    return [
        {"value": fact.text()}
        for fact in ask(host, "x", "127.0.0.1", port, local=True)
        if isinstance(fact, StoreAnswer)
    ]


def test_a_default_port_held_by_a_program_with_nccl_is_not_connected_to() -> None:
    """A bare connection to a bootstrap port kills a job of NCCL up to 2.26."""
    library = libnccl()
    if not _is_free(29500):
        pytest.skip("port 29500 is taken on this machine")
    script = (
        f"import ctypes, socket; ctypes.CDLL({library!r}); s = socket.create_server(('', 29500)); print(flush=True)\n"
        "s.settimeout(1.5)\ntry:\n    s.accept(); print('connected')\nexcept TimeoutError:\n    print('left alone')"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout and owner.stdout.readline()
        report = examine_here({})
        assert findings(report) == {}
        assert "attach" in findings(report, "note")["DDP112"]["fixes"][0]["commands"][0]
        assert owner.stdout.read() == "left alone\n"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.root
def test_the_owner_is_known_as_far_as_permissions_reach() -> None:
    needs_root()
    worker = Path(ddp_doctor.__file__).parent / "workers" / "port.py"
    code = compile(worker.read_text(), str(worker), "exec")
    with listening("silent", "0.0.0.0") as port:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.closerange(3, writing)
            os.closerange(writing + 1, 256)
            os.setuid(65534)
            scope: dict[str, Any] = {}
            exec(code, scope)
            scope["main"](
                {"port": port}, lambda message: os.write(writing, (json.dumps(message) + "\n").encode()), None
            )
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with open(reading) as told:
            tried, owner = map(json.loads, told)
    assert not tried["bindable"]
    assert owner == {"address": "0.0.0.0", "listening": True, "user": "root", "same_user": False}


@pytest.mark.root
def test_master_addr_of_another_host_on_rank_0(inside: Room) -> None:
    environ = rank(0, 29500, "198.51.100.7")
    inside.ip("route", "del", "default")
    finding = findings(inside.examine(environ))["DDP204"]
    assert finding["confidence"] == "certain"
    assert "does not lead to this node" in finding["summary"]
    assert findings(inside.examine(apply_fix(finding, environ))) == {}
    environ |= TWO_NODES
    mended = apply_fix(findings(inside.examine(environ))["DDP204"], environ)
    assert mended["MASTER_ADDR"] == "10.77.0.5"
    assert findings(inside.examine(mended)) == {}


@pytest.mark.root
def test_an_address_that_is_led_back_here_is_right(inside: Room) -> None:
    inside.ip("route", "add", "local", "10.96.0.0/24", "dev", "lo")
    assert findings(inside.examine(rank(0, 29500, "10.96.0.1"))) == {}


@pytest.mark.root
def test_loopback_for_several_nodes(inside: Room) -> None:
    environ = rank(0, 29500) | TWO_NODES
    report = inside.examine(environ)
    assert report["verdict"]["finding"] == "DDP111"
    mended = apply_fix(findings(report)["DDP111"], environ)
    assert mended["MASTER_ADDR"] == "10.77.0.5"
    assert findings(inside.examine(mended)) == {}


@pytest.mark.root
def test_a_master_that_does_not_resolve(inside: Room) -> None:
    environ = rank(1, 29500, "node1.cluster.invalid")
    report = inside.examine(environ)
    assert report["verdict"]["finding"] == "DDP201"
    assert "node1.cluster.invalid" in report["verdict"]["summary"]
    assert findings(inside.examine(apply_fix(findings(report)["DDP201"], environ))) == {}


@pytest.mark.root
def test_a_resolver_that_never_answers_is_named_in_time(inside: Room) -> None:
    inside.replace("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    inside.replace("/etc/nsswitch.conf", "hosts: files dns\n")
    script = (
        "import socket, time; s = socket.socket(2, 2); s.bind(('127.0.0.1', 53)); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen(inside.argv(sys.executable, "-c", script), stdout=subprocess.PIPE) as resolver:
        assert resolver.stdout and resolver.stdout.readline()
        try:
            report = inside.examine(rank(1, 29500, "node1.cluster"), probe_seconds=1.0)
        finally:
            resolver.kill()
    assert "the resolver gave no answer in 1.0 s" in findings(report)["DDP201"]["summary"]
    assert report["tool"]["seconds"] < 3


@pytest.mark.root
@pytest.mark.parametrize("fix", [0, 1])
def test_a_hostname_on_loopback(inside: Room, fix: int, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
    inside.replace("/etc/hosts", hosts.read_text())
    environ = rank(0, 29500, "10.77.0.5") | TWO_NODES
    assert findings(inside.examine({}), "error", "warning") == {}
    report = inside.examine(environ)
    assert report["verdict"]["finding"] == "DDP202"
    finding = findings(report)["DDP202"]
    if fix == 0:
        environ = apply_fix(finding, environ)
    else:
        (command,) = finding["fixes"][1]["commands"]
        subprocess.run(["bash", "-c", command.replace("sudo ", "").replace("/etc/hosts", str(hosts))], check=True)
        inside.replace("/etc/hosts", hosts.read_text())
    assert findings(inside.examine(environ)) == {}


@pytest.mark.root
def test_an_own_name_without_an_address(inside: Room) -> None:
    inside.replace("/etc/hosts", "127.0.0.1 localhost\n")
    assert findings(inside.examine({})) == {}
    environ = rank(0, 29500, "10.77.0.5") | TWO_NODES
    finding = findings(inside.examine(environ))["DDP201"]
    assert socket.gethostname() in finding["summary"]
    assert findings(inside.examine(apply_fix(finding, environ))) == {}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        {"http_proxy": "http://proxy:3128", "https_proxy": "http://proxy:3128"},
        {"MASTER_ADDR": "localhost", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
        {"SLURM_NNODES": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "MASTER_ADDR": "127.0.0.1"},
    ],
)
def test_healthy_shells_give_nothing(environ: dict[str, str]) -> None:
    if environ.get("MASTER_ADDR"):
        environ = environ | {"MASTER_PORT": str(free_port())}
    elif not _is_free(29500):
        pytest.skip("port 29500 is taken on this machine")
    assert findings(examine_here(environ)) == {}


def test_a_listener_that_resets_is_named_every_time() -> None:
    with listening("resetting") as port:
        said = [findings(examine_here(rank(1, port))) for _ in range(5)]
    assert [list(each) for each in said] == [["DDP209"]] * 5


def test_an_address_without_a_route_is_named(inside: Room) -> None:
    inside.ip("route", "add", "unreachable", "10.77.0.9")
    report = inside.examine(rank(1, free_port(), "10.77.0.9"))
    assert report["verdict"]["finding"] == "DDP204"
    assert "no route" in report["verdict"]["summary"]


def test_an_address_where_nobody_answers_is_never_healthy(inside: Room) -> None:
    report = inside.examine(rank(1, free_port(), "10.77.0.9"))
    assert report["verdict"]["status"] == "unknown"
    assert set(report["verdict"]["candidates"]) == {"DDP204", "DDP302"}
    assert report["verdict"]["separate"]["commands"]


def test_an_ipv6_master_needs_ipv6_here(inside: Room) -> None:
    inside.switch_ipv6_off()
    environ = rank(1, free_port(), "::1")
    report = inside.examine(environ)
    assert report["verdict"]["finding"] == "DDP303"
    mended = apply_fix(findings(report)["DDP303"], environ)
    assert findings(inside.examine(mended)) == {}
