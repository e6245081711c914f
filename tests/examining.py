"""What tests of the network's part share: examine this host, a namespace, or an environment, and apply printed fixes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import nccl

from ddp_doctor.collect import collect
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Host
from ddp_doctor.interpret import interpret, interpreters
from ddp_doctor.model import Facts, Subject
from ddp_doctor.packs import load_packs
from ddp_doctor.probes import interfaces, names, nccl_interface, store

ROOT = Path(__file__).resolve().parents[1]
CHECKS = ("DDP111", "DDP112", "DDP2", "DDP3")
PROBES = [probe for module in (names, interfaces, store, nccl_interface) for probe in module.PROBES]
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "checks", ROOT / "tests")))


def _host(environ: Mapping[str, str], probe_seconds: float = 5.0) -> Host:
    return Host(30, probe_seconds=probe_seconds, environ={"PATH": os.defpath, **environ})


def _known(host: Host, environ: Mapping[str, str], libnccl: str) -> Facts:
    here = Subject(host=host.name)
    install = TorchInstall(subject=here, python=sys.executable, libnccl=libnccl)
    given = (Variable(subject=here, source="environment", name=name, value=value) for name, value in environ.items())
    return Facts([install, *given])


def examine_here(
    environ: Mapping[str, str], libnccl: str = "", select: Sequence[str] = CHECKS, probe_seconds: float = 5.0
) -> dict[str, Any]:
    """The report, as JSON holds it, of the network's probes and checks on this host with this environment."""
    host = _host(environ, probe_seconds)
    report = examine(
        "run",
        load_packs(third_party=False),
        host=host,
        probes=PROBES,
        known=_known(host, environ, libnccl),
        selection=Selection(select=tuple(select)),
    )
    found: dict[str, Any] = json.loads(report.to_json())
    return found


def network_facts(environ: Mapping[str, str], libnccl: str = "") -> Facts:
    """What the network's probes see here, and what it means."""
    host = _host(environ)
    return interpret(collect(host, PROBES, _known(host, environ, libnccl)).facts, interpreters())


def findings(report: Mapping[str, Any], *severities: str) -> dict[str, dict[str, Any]]:
    """The findings by id, of these severities (warning and error if none are given)."""
    wanted = severities or ("error", "warning")
    return {each["id"]: each for each in report["findings"] if each["severity"] in wanted}


def apply_fix(finding: Mapping[str, Any], environ: Mapping[str, str], number: int = 0) -> dict[str, str]:
    """Type the commands of a printed fix into a shell with this environment; the environment that it leaves."""
    script = "\n".join(("set -e", *finding["fixes"][number]["commands"], "env -0"))
    done = subprocess.run(
        ["bash", "-c", script], env={"PATH": os.environ["PATH"], **environ}, capture_output=True, check=True
    )
    shell = {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}
    pairs = (entry.partition("=") for entry in done.stdout.decode().rpartition("\0")[0].split("\0"))
    return {name: value for name, _, value in pairs if name not in shell}


def libnccl(version: str = "") -> str:
    """A libnccl.so.2: that version's of `scripts/fetch_nccl.py`, or whichever is there; skips where there is none."""
    for path in sorted(nccl.folder_of_versions().glob(f"{version or '*'}/libnccl.so.2"), reverse=True):
        return str(path)
    spec = importlib.util.find_spec("nvidia") if not version else None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / "nccl" / "lib" / "libnccl.so.2"
        if path.exists():
            return str(path)
    pytest.skip(f"no libnccl {version}: python scripts/fetch_nccl.py {version}".rstrip())


def needs_root() -> None:
    """Skip where namespaces, mounts and interfaces cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make network and mount namespaces")
    for argv in (["ip", "netns", "list"], ["unshare", "--mount", "true"]):
        try:
            subprocess.run(argv, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"{' '.join(argv)} does not work here: {error}")


class Room:
    """A network namespace with only loopback, whose name services files can be replaced."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._binds: dict[str, Path] = {}

    def ip(self, *arguments: str) -> None:
        """Run `ip` inside."""
        subprocess.run(["ip", "-n", self.name, *arguments], check=True, capture_output=True)

    def bridge(self, name: str, address: str, *, busy: bool = True) -> None:
        """A bridge as a container runtime makes it; `busy` gives it a running veth port, so that it has a carrier."""
        self.ip("link", "add", name, "type", "bridge")
        if busy:
            self.pair(f"p{name}"[:15], "", port_of=name)
        self.ip("addr", "add", address, "dev", name)
        self.ip("link", "set", name, "up")

    def pair(self, name: str, address: str, *, carrier: bool = True, up: bool = True, port_of: str = "") -> None:
        """One end of a veth pair; the other end is up too, unless there shall be no carrier."""
        peer = f"x{name}"[:15]
        self.ip("link", "add", name, "type", "veth", "peer", "name", peer)
        if port_of:
            self.ip("link", "set", name, "master", port_of)
        if address:
            self.ip("addr", "add", address, "dev", name, *(("nodad",) if ":" in address else ()))
        if carrier:
            self.ip("link", "set", peer, "up")
        if up:
            self.ip("link", "set", name, "up")

    def switch_ipv6_off(self) -> None:
        """No interface has an IPv6 address from now on."""
        setting = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
        subprocess.run(["ip", "netns", "exec", self.name, "sh", "-c", setting], check=True)

    def settle(self) -> None:
        """Wait until the kernel has noticed the carriers of all links: it takes up to a second."""
        for _ in range(40):
            links = subprocess.run(
                ["ip", "-n", self.name, "-o", "link"], check=True, capture_output=True, text=True
            ).stdout
            if not any("LOWER_UP" in line and "state DOWN" in line for line in links.splitlines()):
                return
            time.sleep(0.05)

    def replace(self, path: str, text: str) -> None:
        """Let this file hold that text for what runs inside."""
        own = self._folder / path.strip("/").replace("/", "-")
        own.write_text(text)
        self._binds[path] = own

    def argv(self, *command: str) -> list[str]:
        """The command line that runs a command inside."""
        binds = "".join(f"mount --bind {own} {path} && " for path, own in self._binds.items())
        inner = ["unshare", "--mount", "sh", "-c", f'{binds}exec "$@"', "sh", *command]
        return ["ip", "netns", "exec", self.name, *inner]

    def examine(self, environ: Mapping[str, str], **options: Any) -> dict[str, Any]:
        """`examine_here`, inside."""
        self.settle()
        request = json.dumps({"environ": dict(environ), **options})
        done = subprocess.run(
            self.argv(sys.executable, __file__, request),
            env={"PATH": os.environ["PATH"], "PYTHONPATH": PATHS, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@contextmanager
def room(folder: Path) -> Iterator[Room]:
    """A fresh Room; its interfaces go with it."""
    needs_root()
    name = f"ddpd{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        made = Room(name, folder)
        made.ip("link", "set", "lo", "up")
        # the machine's nameserver cannot be reached from inside, and waiting for it is a fault of its own
        made.replace("/etc/nsswitch.conf", "hosts: files\n")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@contextmanager
def listening(behaviour: str, address: str = "127.0.0.1") -> Iterator[int]:
    """The port of a server that is no store: silent, http, closing, resetting, echo, or deaf (its queue is full)."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, 0))
    kept: list[socket.socket] = []
    if behaviour == "deaf":
        server.listen(0)
        for _ in range(3):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            kept.append(client)
    else:
        server.listen(16)
        threading.Thread(target=_serve, args=(server, behaviour, kept), daemon=True).start()
    try:
        yield int(server.getsockname()[1])
    finally:
        # wakes the thread that stands in accept()
        if behaviour != "deaf":
            server.shutdown(socket.SHUT_RDWR)
        for each in (server, *kept):
            each.close()


def _serve(server: socket.socket, behaviour: str, kept: list[socket.socket]) -> None:
    while True:
        try:
            client, _ = server.accept()
            kept.append(client)
            if behaviour == "closing":
                client.close()
            elif behaviour == "resetting":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            elif behaviour == "http":
                client.recv(4096)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                client.close()
            elif behaviour == "echo":
                client.sendall(client.recv(4096))
        except OSError:
            return


if __name__ == "__main__":
    print(json.dumps(examine_here(**json.loads(sys.argv[1]))))
