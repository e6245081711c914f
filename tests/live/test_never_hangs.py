"""`run` ends in time whatever it asks gives no answer, says what that was, and leaves no process behind.

The call is measured from outside: to the end of a pipe that reads stdout and stderr, so that a child which kept either
open would count.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import namespaces
import pytest
from fakes.node import have_compiler, read_node, set_up

pytestmark = [pytest.mark.live, pytest.mark.root]
if os.geteuid() != 0:
    pytest.skip("needs root for mount namespaces", allow_module_level=True)

TIMEOUT = 12.0
ALLOWED = TIMEOUT + 2.0
RUN = (sys.executable, "-m", "ddp_doctor", "run", "--format", "json", "--timeout", str(TIMEOUT))
SILENT = {
    "nvidia-smi": "nvidia-smi",
    "nvml": "nvmlInit",
    "libcuda": "cuInit",
    "dns": "name",
    "shm": "/dev/shm",
    "listener": "said nothing",
}


class Scene:
    """What is made to hang: prepared in the child before it becomes the doctor."""

    def __init__(self, folder: Path, hanging: set[str]) -> None:
        self.folder = folder
        self.hanging = hanging
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "SLURM", "NCCL", "GLOO", "CUDA"))
        }
        self.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        if hanging & {"nvml", "libcuda", "nvidia-smi"}:
            self._gpus()

    def _gpus(self) -> None:
        node = read_node("h100x8")
        (self.folder / "node").mkdir()
        setup = set_up(node, self.folder / "node")
        rules = []
        if "nvml" in self.hanging:
            rules.append("rule hang nvmlInitWithFlags -1 0")
        if "libcuda" in self.hanging:
            rules.append("rule hang cuInit -1 0")
        description = setup.libraries / "node.txt"
        description.write_text(description.read_text() + "\n".join(rules) + "\n")
        if "nvidia-smi" in self.hanging:
            # asked only where NVML cannot be loaded
            if "nvml" not in self.hanging:
                (setup.libraries / "libnvidia-ml.so.1").unlink()
            program = self.folder / "bin" / "nvidia-smi"
            program.parent.mkdir()
            program.write_text("#!/bin/sh\nexec sleep 600\n")
            program.chmod(0o755)
            self.environ["PATH"] = f"{program.parent}:{self.environ['PATH']}"
        self.environ["LD_LIBRARY_PATH"] = str(setup.libraries)

    def prepare(self) -> None:
        """Runs in the child, between fork and exec."""
        namespaces.unshare(namespaces.CLONE_NEWNS)
        if "shm" in self.hanging:
            namespaces.mount_dead_fuse("/dev/shm")
        if "dns" in self.hanging:
            namespaces.bind_file(
                "nameserver 127.0.0.1\noptions timeout:30 attempts:2\n", "/etc/resolv.conf", self.folder
            )
            namespaces.bind_file("hosts: dns\n", "/etc/nsswitch.conf", self.folder)


@contextmanager
def silent_listener() -> Iterator[int]:
    """A port that accepts and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


@contextmanager
def silent_name_server() -> Iterator[None]:
    """Something that takes questions on port 53 of loopback and never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 53))
        yield


def examine(scene: Scene) -> tuple[float, dict[str, Any], int]:
    """Seconds to the end of both pipes, the report, the exit code."""
    started = time.monotonic()
    process = subprocess.Popen(
        RUN,
        env=scene.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=scene.prepare,
        close_fds=False,  # or the dead file system would lose its server and fail instead of hanging
        text=True,
    )
    out, _ = process.communicate(timeout=ALLOWED + 20)
    return time.monotonic() - started, json.loads(out), process.returncode


@pytest.mark.skipif(not have_compiler(), reason="needs gcc for the fake driver")
@pytest.mark.parametrize("hanging", [*SILENT, "all"])
def test_ends_in_time_and_names_what_did_not_answer(hanging: str, tmp_path: Path) -> None:
    parts = set(SILENT) if hanging == "all" else {hanging}
    scene = Scene(tmp_path, parts)
    with silent_listener() as port, silent_name_server():
        if "listener" in parts:
            scene.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "1", "WORLD_SIZE": "2"}
        seconds, report, _ = examine(scene)
    assert seconds <= ALLOWED, f"took {seconds:.1f} s with {hanging} hanging"
    said = json.dumps([report["probes"], report["findings"], report["outcomes"]])
    for part in parts - ({"nvidia-smi"} if "nvml" in parts else set()):
        assert SILENT[part] in said, f"{part} hung and is not named"
    assert not workers_alive(tmp_path)


def workers_alive(folder: Path) -> list[str]:
    """Processes whose environment or mounts belong to this test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_killed_it_leaves_no_worker_alive_after_a_second(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"shm"})
    scene.environ["DDP_DOCTOR_TEST_FOLDER"] = scene.environ["HOME"] = str(tmp_path)  # what workers inherit marks them
    process = subprocess.Popen(
        RUN,
        env=scene.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=scene.prepare,
        close_fds=False,
    )
    deadline = time.monotonic() + 5
    while len(workers_alive(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(workers_alive(tmp_path)) >= 3, "the workers never started"
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1)
    assert workers_alive(tmp_path) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_prints_what_it_found(number: signal.Signals, code: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"shm"})
    scene.environ |= {"RANK": "1", "WORLD_SIZE": "two"}
    process = subprocess.Popen(
        RUN,
        env=scene.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=scene.prepare,
        close_fds=False,
        text=True,
    )
    threading.Timer(3.5, process.send_signal, [number]).start()
    out, _ = process.communicate(timeout=ALLOWED)
    report = json.loads(out)
    assert process.returncode == code
    assert report["interrupted"]
    assert report["verdict"]["status"] == "problem"
    # of the machine: its own name, and a CUDA build of torch without a GPU
    assert {finding["id"] for finding in report["findings"]} - {"DDP202", "DDP413"} == {"DDP102"}


@pytest.mark.parametrize("budget", ["0.01", "0.3", "1"])
def test_a_budget_that_is_too_small_is_kept(budget: str, tmp_path: Path) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [*RUN[:-1], budget], env=Scene(tmp_path, set()).environ, capture_output=True, text=True, check=False
    )
    assert time.monotonic() - started <= float(budget) + 2
    assert json.loads(done.stdout)["verdict"]["status"] in ("unknown", "healthy")
