"""A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd, ended with the block.

Each node is a network namespace, and each slurmd, and so each task, has a host name and an /etc/hosts of its own. The
first node is the head as well. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jobs import free_port

NODES = {"doctor-a": "10.77.0.1", "doctor-b": "10.77.0.2"}
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo", "unshare", "nsenter", "ip")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))


def missing() -> str:
    """What is not installed, or an empty string."""
    return ", ".join(program for program in PROGRAMS if shutil.which(program, path=_PATH) is None)


@contextmanager
def cluster(folder: Path, cpus: int = 4) -> Iterator[list[str]]:
    """What to put before `sbatch` or `srun`, to call it on the first node."""
    head = next(iter(NODES))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (folder / "hosts").write_text("\n".join(("127.0.0.1 localhost", *(f"{ip} {node}" for node, ip in NODES.items()))))
    configuration = folder / "slurm.conf"
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={head}({NODES[head]})",
        f"SlurmctldPort={free_port()}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"PlugStackConfig={folder}/plugstack.conf",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "ReturnToService=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SlurmdParameters=config_overrides",
        "MailProg=/bin/true",
        *(f"NodeName={node} NodeAddr={ip} Port={free_port()} CPUs={cpus}" for node, ip in NODES.items()),
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    configuration.write_text("\n".join(lines) + "\n")
    (folder / "plugstack.conf").touch()
    (folder / "state").mkdir()
    environ = os.environ | {"SLURM_CONF": str(configuration), "PATH": _PATH}
    munge = ["munged", "-F", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("pid", "seed", "log")]
    with ExitStack() as stack:
        places = [stack.enter_context(_node(node, folder)) for node in NODES]
        _join(places)

        def start(*daemon: str) -> None:
            log = stack.enter_context(open(folder / f"{len(list(folder.glob('*.out')))}.out", "wb"))
            process = subprocess.Popen(daemon, env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            stack.callback(_end, process)

        start(*munge)
        _wait_for(lambda: (folder / "munge.socket").exists(), "munged")
        first = [*_inside(places[0]), "env", *(f"{name}={environ[name]}" for name in ("SLURM_CONF", "PATH"))]
        start(*first, "slurmctld", "-D")
        for place in places:
            start(*_inside(place), "slurmd", "-D")
        _wait_for(lambda: _idle(first) == len(NODES), f"the nodes ({folder})")
        yield first


@contextmanager
def _node(name: str, folder: Path) -> Iterator[int]:
    """A process that holds the namespaces of a node."""
    there = f"hostname {name} && mount --bind {folder}/hosts /etc/hosts && ip link set lo up && exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--uts", "--mount", "--net", "sh", "-c", there], stdin=subprocess.DEVNULL)
    try:
        _wait_for(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n", name)
        yield holder.pid
    finally:
        _end(holder)


def _join(places: list[int]) -> None:
    """A cable between the two nodes."""
    first, second = (str(place) for place in places)
    command = ["ip", "link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second]
    subprocess.run(command, check=True)
    for place, address in zip(places, NODES.values(), strict=True):
        for words in (f"address add {address}/24 dev eth0", "link set eth0 up"):
            subprocess.run([*_inside(place), "ip", *words.split()], check=True)


def _inside(place: int) -> list[str]:
    return ["nsenter", "--target", str(place), "--uts", "--mount", "--net"]


def _idle(first: list[str]) -> int:
    command = [*first, "sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split().count("idle")


def _wait_for(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come up in {seconds} s"
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
