"""An OpenSSH server on loopback with a configuration and keys of its own, and an `ssh` that uses nothing but them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs import free_port

_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))


def missing() -> str:
    """What is not installed, or an empty string."""
    return ", ".join(program for program in ("ssh", "sshd", "ssh-keygen") if shutil.which(program, path=_PATH) is None)


@contextmanager
def server(folder: Path, prefix: tuple[str, ...] = (), address: str = "127.0.0.1", **variables: str) -> Iterator[int]:
    """The port of a server, whose logins have these variables; `prefix` starts it elsewhere, as in a namespace."""
    folder.mkdir(exist_ok=True)
    user = folder / "user"
    if not user.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(user)], check=True)
        shutil.copy(f"{user}.pub", folder / "authorized")
    key = folder / f"host-{address}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    port = free_port()
    set_env = " ".join(f'"{name}={value}"' for name, value in variables.items())
    configuration = folder / f"sshd_config-{address}"
    lines = [
        f"Port {port}", f"ListenAddress {address}", f"HostKey {key}", f"PidFile {folder}/sshd-{address}.pid",
        f"AuthorizedKeysFile {folder}/authorized", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
        "UsePAM no", "StrictModes no", "PermitRootLogin yes", f"SetEnv {set_env}",
    ]  # fmt: skip
    configuration.write_text("\n".join(lines) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = [*prefix, str(shutil.which("sshd", path=_PATH)), "-D", "-e", "-f", str(configuration)]
    with open(folder / f"sshd-{address}.log", "wb") as log:
        process = subprocess.Popen(daemon, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while b"Server listening" not in (folder / f"sshd-{address}.log").read_bytes():
            assert process.poll() is None and time.monotonic() < deadline, (folder / f"sshd-{address}.log").read_text()
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def client(folder: Path, hosts: dict[str, tuple[str, int]]) -> str:
    """A PATH on which `ssh` knows these names, and none of this user's keys and settings."""
    lines = [f"IdentityFile {folder}/user", "IdentitiesOnly yes", "StrictHostKeyChecking no"]
    lines += [f"UserKnownHostsFile {folder}/known", "GlobalKnownHostsFile /dev/null"]
    for name, (address, port) in hosts.items():
        lines += [f"Host {name}", f"  HostName {address}", f"  Port {port}"]
    (folder / "ssh_config").write_text("\n".join(lines) + "\n")
    programs = folder / "bin"
    programs.mkdir()
    wrapper = programs / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    return os.pathsep.join((str(programs), os.environ["PATH"]))


def unused_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
