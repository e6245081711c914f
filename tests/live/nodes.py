"""Hosts for tests: network, mount and UTS namespaces joined by a bridge, each with interfaces, names and a firewall of its
own. Needs root, ip, nsenter and unshare; nft for what is filtered."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

HOLD = "import os, time; os.write(1, b'here'); os.close(1); time.sleep(3600)"
TOOLS = ("ip", "nsenter", "unshare", "nft")
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
LAUNCHER = '#!/bin/sh\n"$@" &\nchild=$!\ntrap "kill -TERM $child" TERM\nwait $child\nexit $?\n'
ROOT = Path(__file__).parents[2]


def missing() -> str:
    """Why no such hosts can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "needs root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


class Node(msgspec.Struct, kw_only=True):
    """A host. `addresses` are those of eth0; `hosts` is its /etc/hosts, `pid` the process that holds its namespaces."""

    name: str
    pid: int
    addresses: tuple[str, ...]
    folder: Path

    def command(self, *argv: str) -> list[str]:
        """The command line that runs this on the host."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--", *argv]

    def run(self, line: str) -> str:
        """What a shell line prints there; it has to succeed."""
        done = subprocess.run(self.command("sh", "-ec", line), capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, f"{self.name}: {line}: {done.stderr}"
        return done.stdout

    def names(self, text: str) -> None:
        """Its /etc/hosts from now on, below the line of localhost."""
        (self.folder / "hosts").write_text(HOSTS + text)

    def resolver(self, text: str) -> None:
        """Its /etc/resolv.conf from now on."""
        (self.folder / "resolv.conf").write_text(text)

    def apply(self, command: str) -> None:
        """A command of a fix as it is printed, on the host that its comment names; the rest of them have none."""
        line, _, where = command.partition("#")
        assert not where or where.strip() == f"on {self.name}", command
        self.run(line.replace("sudo ", ""))

    @property
    def left_behind(self) -> list[str]:
        """Sockets that listen, and files besides those of the test."""
        tables = self.run("cat /proc/net/tcp; cat /proc/net/tcp6 2>/dev/null || true").splitlines()
        found = [line.split()[1] for line in tables if line.split()[3:4] == ["0A"]]
        return found + sorted({path.name for path in self.folder.iterdir()} - {"hosts", "resolv.conf", "mpirun"})

    def firewall(self, *rules: str, chain: str = "input") -> None:
        """Rules of nft in the chain of what comes in, or goes out."""
        lines = [f"type filter hook {chain} priority 0; policy accept;", *rules]
        body = "\n".join(lines)
        table = f"table inet test_{chain} {{\nchain here {{\n{body}\n}}\n}}\n"
        subprocess.run(self.command("nft", "-f", "-"), input=table, text=True, check=True)

    def decoy(self, name: str, address: str, kind: str = "bridge") -> None:
        """One more interface that leads nowhere: a bridge with a container's end in it, or a link to nobody."""
        if kind == "bridge":
            self.run(
                f"ip link add {name} type bridge forward_delay 0; ip link add vc{name[:8]} type veth peer name pc{name[:8]}"
            )
            self.run(f"ip link set vc{name[:8]} master {name} up; ip link set pc{name[:8]} up")
        elif kind == "tunnel":
            self.run(f"ip tuntap add dev {name} mode tun")
        else:
            self.run(f"ip link add {name} type veth peer name p{name[:10]}; ip link set p{name[:10]} up")
        self.run(f"ip addr add {address} dev {name}; ip link set {name} up")


@contextmanager
def network(
    folder: Path,
    count: int,
    *,
    v4: bool = True,
    v6: bool = False,
    v6_only_on: Sequence[int] = (),
    v4_only_on: Sequence[int] = (),
) -> Iterator[list[Node]]:
    """So many hosts `node0`.. on one network, 10.7.0.1 and fd07::1 upwards; each knows all names."""
    with ExitStack() as stack:
        wire = stack.enter_context(_held(folder / "wire", "wire"))
        wire.run("ip link set lo up; ip link add lan type bridge; ip link set lan up")
        nodes = []
        for number in range(count):
            node = stack.enter_context(_held(folder / f"node{number}", f"node{number}"))
            wire.run(
                f"ip link add p{number} type veth peer name eth0 netns {node.pid}; ip link set p{number} master lan up"
            )
            addresses = []
            if v4 and number not in v6_only_on:
                addresses.append(f"10.7.0.{number + 1}")
                node.run(f"ip addr add {addresses[-1]}/24 dev eth0")
            if v6 and number not in v4_only_on:
                addresses.append(f"fd07::{number + 1}")
            else:
                node.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
            node.run("ip link set eth0 up; ip link set lo up")
            if v6 and number not in v4_only_on:
                node.run(f"ip -6 addr add {addresses[-1]}/64 dev eth0 nodad")
            gateway = "10.7.0.254" if v4 and number not in v6_only_on else "fd07::fffe"
            node.run(f"ip {'-6' if ':' in gateway else ''} route add default via {gateway} dev eth0")
            node.addresses = tuple(addresses)
            nodes.append(node)
        names = "".join(f"{address} {node.name}\n" for node in nodes for address in node.addresses)
        for node in nodes:
            node.names(names)
        yield nodes


@contextmanager
def contained(folder: Path, host: Node) -> Iterator[Node]:
    """A container on a bridge of that host, whose connections leave with the host's address, as docker's do."""
    host.run("sysctl -qw net.ipv4.ip_forward=1; ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0")
    table = "table ip outside {\nchain here {\ntype nat hook postrouting priority 100;\n"
    table += "ip saddr 172.17.0.0/16 oifname eth0 masquerade\n}\n}\n"
    subprocess.run(host.command("nft", "-f", "-"), input=table, text=True, check=True)
    with _held(folder, f"{host.name}c") as node:
        host.run(f"ip link add pc type veth peer name eth0 netns {node.pid}; ip link set pc master docker0 up")
        host.run("ip link set docker0 up")
        node.run("ip link set lo up; ip addr add 172.17.0.2/16 dev eth0; ip link set eth0 up")
        node.run("ip route add default via 172.17.0.1")
        node.names(f"172.17.0.2 {node.name}\n")
        node.addresses = ("172.17.0.2",)
        yield node


@contextmanager
def _held(folder: Path, name: str) -> Iterator[Node]:
    folder.mkdir(parents=True)
    (folder / "hosts").write_text(HOSTS)
    (folder / "resolv.conf").write_text("")
    (folder / "mpirun").write_text(LAUNCHER)
    (folder / "mpirun").chmod(0o755)
    script = (
        f"hostname {name} && mount --make-rprivate / && mount -t sysfs sysfs /sys && "
        f"mount --bind {folder}/hosts /etc/hosts && "
        f'mount --bind {folder}/resolv.conf "$(readlink -f /etc/resolv.conf)" && exec "$0" -c "$1"'
    )
    process = subprocess.Popen(
        ["unshare", "--net", "--mount", "--uts", "sh", "-ec", script, sys.executable, HOLD], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.read() == b"here"
        yield Node(name=name, pid=process.pid, addresses=(), folder=folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Said(msgspec.Struct, kw_only=True):
    """What the ranks of one host printed, with the seconds until the last of them ended, and their exit codes."""

    out: str = ""
    errors: str = ""
    seconds: float = 0.0
    codes: tuple[int, ...] = ()

    @property
    def report(self) -> dict[str, Any]:
        """The one report."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    def found(self, *severities: str) -> dict[str, dict[str, Any]]:
        """The findings by id, of these severities."""
        wanted = severities or ("error", "warning")
        return {each["id"]: each for each in reversed(self.report["findings"]) if each["severity"] in wanted}


class Started:
    """The ranks of a job that runs on these hosts, `local` on each, as mpirun starts them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *arguments: str,
        local: int = 1,
        master: str = "",
        port: int = 29500,
        environ: dict[str, str] | None = None,
        environ_of: dict[int, dict[str, str]] | None = None,
    ) -> None:
        self.began = time.monotonic()
        self.nodes = nodes
        self.processes: list[list[subprocess.Popen[str]]] = []
        size = len(nodes) * local
        for place, node in enumerate(nodes):
            ranks = []
            for number in range(local):
                rank = place * local + number
                variables = {
                    "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(local),
                    "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size),
                    "OMPI_COMM_WORLD_LOCAL_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_SIZE": str(local),
                    "PMIX_NAMESPACE": "prterun-test",
                    "MASTER_ADDR": master or nodes[0].addresses[0], "MASTER_PORT": str(port),
                }  # fmt: skip
                command = [str(node.folder / "mpirun"), sys.executable, "-m", "ddp_doctor", "run", *arguments]
                ranks.append(started(node, command, variables | (environ or {}) | (environ_of or {}).get(place, {})))
            self.processes.append(ranks)

    def said(self, patience: float = 100.0) -> list[Said]:
        """What each host said; whoever has not ended by then is killed and has no exit code."""
        give_up = self.began + patience
        told = []
        for ranks in self.processes:
            said = Said()
            for process in ranks:
                try:
                    out, errors = process.communicate(timeout=max(0.1, give_up - time.monotonic()))
                    said.codes += (process.returncode,)
                except subprocess.TimeoutExpired:
                    self.signal(process, signal.SIGKILL)
                    out, errors = process.communicate()
                said.out += out
                said.errors += errors
                said.seconds = time.monotonic() - self.began
            told.append(said)
        return told

    def signal(self, process: subprocess.Popen[str], number: int) -> None:
        """Send a signal to a rank and everything it started."""
        for pid in [process.pid, *_below(process.pid)]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stop(self, place: int) -> None:
        """Stop all ranks of a host, as a suspended job's."""
        for process in self.processes[place]:
            self.signal(process, signal.SIGSTOP)

    def kill(self, place: int) -> None:
        """End all ranks of a host."""
        for process in self.processes[place]:
            self.signal(process, signal.SIGKILL)


def started(node: Node, command: Sequence[str], variables: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A command on a host, with these variables and little else in its environment."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(node.folder),
        "TMPDIR": str(node.folder),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "checks"))),
    }
    return subprocess.Popen(
        node.command(*command), env=environ | (variables or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def _below(pid: int) -> list[int]:
    try:
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [each for child in children for each in (child, *_below(child))]
