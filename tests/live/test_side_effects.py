"""A merged run leaves nothing behind, and a job that trains on the same node meanwhile has nothing to do with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from jobs import HANGS, free_port

pytestmark = pytest.mark.live
ENVIRON = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMPI", "PMI", "MASTER_"))},
    "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry),
    "PYTHONDONTWRITEBYTECODE": "1",
}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")
LISTENING = "0A"
MARK = "SIDE_EFFECTS_TEST"

IN_PROCESS = """
import json, os, sys, threading
from ddp_doctor.cli.commands import application

def state():
    task = f"/proc/self/task/{os.getpid()}/children"
    return {
        "variables": dict(os.environ), "threads": [each.name for each in threading.enumerate()],
        "descriptors": sorted(os.listdir("/proc/self/fd")), "children": open(task).read().split(), "cwd": os.getcwd(),
    }

before = state()
try:
    application(["run", "--wait", "30", "--select", "DDP1,DDP2"])
except SystemExit as end:
    code = end.code
told = {"before": before, "after": state(), "torch": "torch" in sys.modules, "code": code}
with open(f"rank{os.environ['RANK']}", "w") as file:
    json.dump(told, file)
"""


def test_ranks_that_met_are_as_they_were_before(tmp_path: Path) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", IN_PROCESS], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
            env=ENVIRON | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    out = "".join(rank.communicate(timeout=100)[0] for rank in ranks)
    assert "2 of 2 ranks merged" in " ".join(out.split()), out
    for rank in range(2):
        told = json.loads((tmp_path / f"rank{rank}").read_text())
        assert told["after"] == told["before"]
        assert told["code"] == 0
        # no process group can be left where torch was never loaded
        assert not told["torch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0", "rank1"]


def left(room: Path) -> dict[str, Any]:
    """What is there in these namespaces and this folder."""
    sockets = [
        line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]
    ]
    return {
        "listeners": sorted(row[1] for row in sockets if row[3] == LISTENING),
        "abstract": sorted(word for word in Path("/proc/net/unix").read_text().split() if word.startswith("@")),
        "shm": sorted(path.name for path in Path("/dev/shm").iterdir()),
        "sysv": Path("/proc/sysvipc/shm").read_text(),
        "files": sorted(str(path) for path in room.rglob("*") if not path.is_dir()),
    }


def marked(mark: str) -> list[str]:
    """The command lines of processes with this mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def beside_a_job(folder: Path, same_port: bool) -> dict[str, Any]:
    """In namespaces of its own: a job trains, the doctor runs with two ranks, the job is told to end."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    room, port, mark = folder / "room", free_port(), uuid.uuid4().hex
    (folder / "ready").mkdir()
    room.mkdir()
    job = subprocess.Popen(
        [*TORCHRUN, f"--master-port={port}", str(HANGS / "trains_until_told.py")],
        env=ENVIRON | {"READY": str(folder / "ready"), "STOP": str(folder / "stop")},
    )
    try:
        while len(list((folder / "ready").iterdir())) < 2:
            time.sleep(0.05)
        rule = ["INPUT", "-p", "tcp", "--dport", str(port), "--syn"]
        subprocess.run(["iptables", "-A", *rule], check=True)
        before = left(room)
        inner = f"export MASTER_PORT={port}; " if same_port else ""
        doctor = subprocess.run(
            [*TORCHRUN, f"--master-port={free_port()}", "--no-python",
             "sh", "-c", f'{inner}exec "$@"', "-", sys.executable, "-m", "ddp_doctor", "run", "--format", "json"],
            env=ENVIRON | {"TMPDIR": str(room), "HOME": str(room), MARK: mark}, cwd=room,
            stdout=subprocess.PIPE, text=True, timeout=150, check=False,
        )  # fmt: skip
        alive, after = marked(mark), left(room)
        counted = subprocess.run(["iptables", "-L", "INPUT", "-nvx"], capture_output=True, text=True, check=True).stdout
    finally:
        (folder / "stop").touch()
        try:
            code = job.wait(60)
        except subprocess.TimeoutExpired:
            job.terminate()
            job.wait(20)
            raise
    return {
        "report": doctor.stdout, "alive": alive, "before": before, "after": after, "job": code,
        "calls": int(counted.splitlines()[2].split()[0]),
    }  # fmt: skip


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")
@pytest.mark.parametrize("same_port", [False, True], ids=["own-port", "port-of-the-job"])
def test_a_job_on_the_same_node_is_not_disturbed_and_nothing_is_left(tmp_path: Path, same_port: bool) -> None:
    apart = ("unshare", "--net", "--mount", "--ipc", "--")
    done = subprocess.run(
        [*apart, sys.executable, __file__, str(tmp_path), *(["same"] if same_port else [])],
        env=ENVIRON, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    report = json.loads(told["report"])
    assert "2 of 2 ranks merged" in report["target"]["merged"]
    assert told["after"] == told["before"]
    assert told["alive"] == []
    # where these ranks are told that very port, what listens there is asked once for what it is
    assert told["calls"] <= int(same_port), "somebody connected to the port of the job's store"
    assert told["job"] == 0


if __name__ == "__main__":
    print("\n" + json.dumps(beside_a_job(Path(sys.argv[1]), "same" in sys.argv[2:])))
