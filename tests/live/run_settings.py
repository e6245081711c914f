"""Settings in which `ddp-doctor run` is called as a person types it, healthy ones and others.

What each setting must give stands in its row, written before the first run.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from examining import PATHS, Room, listening, room
from jobs import free_port
from namespaces import CLONE_NEWNET, CLONE_NEWNS, bind_file, mount, unshare

TESTS = Path(__file__).parents[1]
CUDA_PYTHON = os.environ.get("DDP_DOCTOR_TEST_CUDA_PYTHON", "")
KEPT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One way to call `run`: its environment and arguments, what prepares its namespaces, and the ids it must give.

    `{port}` in a value is a port where `listener` behaves as named, else one that is free.
    """

    title: str
    environ: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    """Ids at warning or above."""
    code: int | None = 0
    """None where it depends on how long the trial waits."""
    listener: str = ""
    prepare: Callable[[Path], None] | None = None
    inside: Callable[[Room], None] | None = None
    """Links of a network namespace to run in."""
    root: bool = False
    quick: bool = False


def by_hand(rank: int, world: int, address: str = "127.0.0.1", **more: str) -> dict[str, str]:
    """env:// variables as people export them."""
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": address, "MASTER_PORT": "{port}"} | more


def named(line: str) -> Callable[[Path], None]:
    """A hosts file that gives this node's name an address."""

    def prepare(folder: Path) -> None:
        unshare(CLONE_NEWNS)
        bind_file(f"127.0.0.1 localhost\n{line} {socket.gethostname()}\n", "/etc/hosts", folder)

    return prepare


def shm_of(size: str) -> Callable[[Path], None]:
    """A /dev/shm of that size."""

    def prepare(folder: Path) -> None:
        unshare(CLONE_NEWNS)
        mount("tmpfs", "/dev/shm", "tmpfs", 0, f"size={size}")

    return prepare


def no_file_limit(number: int) -> Callable[[Path], None]:
    """RLIMIT_NOFILE."""
    return lambda folder: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def only_loopback(folder: Path) -> None:
    """A network namespace whose only interface is lo, and up."""
    unshare(CLONE_NEWNET)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def docker_and_eth0(inside: Room) -> None:
    """A node with a link and Docker's bridge, which came first."""
    inside.bridge("docker0", "172.17.0.1/16")
    inside.pair("eth0", "10.0.0.5/24")
    inside.ip("route", "add", "default", "via", "10.0.0.1")


def dead_nameserver(inside: Room) -> None:
    """Questions about names go out on the link and nobody answers."""
    inside.replace("/etc/resolv.conf", "nameserver 10.0.0.53\n")
    inside.replace("/etc/nsswitch.conf", "hosts: files dns\n")
    docker_and_eth0(inside)


NODES = {"NNODES": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
HEALTHY = [
    Setting(title="a plain shell", quick=True),
    Setting(title="rank 0 by hand", environ=by_hand(0, 2)),
    Setting(title="a world of one", environ=by_hand(0, 1, "localhost")),
    Setting(title="an interface for gloo", environ={"GLOO_SOCKET_IFNAME": "lo"}),
    Setting(title="nccl may speak", environ={"NCCL_DEBUG": "INFO"}),
    Setting(title="threads", environ={"OMP_NUM_THREADS": "1"}),
    Setting(title="no GPUs wanted", environ={"CUDA_VISIBLE_DEVICES": ""}),
    Setting(title="a web proxy", environ={"http_proxy": "http://10.9.9.9:3128", "https_proxy": "http://10.9.9.9:3128"}),
    Setting(title="legacy store", environ={"USE_LIBUV": "0"}),
    Setting(title="more checks by torch", environ={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    Setting(title="a batch shell", environ={"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "bash", "SLURM_NNODES": "1"}),
    Setting(title="a pod", environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_PORT": "tcp://10.0.0.1:443"}),
    Setting(title="no home", environ={"HOME": "/nonexistent"}),
    Setting(title="plain C locale", environ={"LANG": "C", "LC_ALL": "C"}),
    Setting(title="debian's name", prepare=named("127.0.1.1"), root=True),
    Setting(title="a name with an address", prepare=named("127.0.0.1"), root=True),
    Setting(title="docker's 64 MiB", prepare=shm_of("64m"), root=True),
    Setting(title="1024 open files", prepare=no_file_limit(1024)),
    Setting(title="only loopback", prepare=only_loopback, root=True),
    Setting(title="docker and a link", inside=docker_and_eth0, root=True),
    Setting(title="four ranks", arguments=("--nproc", "4")),
    Setting(title="a correct script", arguments=("--script", "cases/scripts/correct/torchrun_ddp.py"), quick=True),
    *([Setting(title="the CUDA build", arguments=("--python", CUDA_PYTHON))] if CUDA_PYTHON else []),
]
FAULTY = [
    Setting(title="silent", environ=by_hand(1, 2), listener="silent", expect=("DDP209",), code=1, quick=True),
    Setting(title="http", environ=by_hand(1, 2), listener="http", expect=("DDP209",), code=1),
    Setting(title="closes", environ=by_hand(1, 2), listener="closing", expect=("DDP209",), code=1),
    Setting(title="held port", environ=by_hand(0, 2), listener="silent", expect=("DDP112",), code=1, quick=True),
    Setting(
        title="another host's address",
        environ=by_hand(0, 2, "10.0.0.9"),
        inside=docker_and_eth0,
        expect=("DDP204",),
        code=1,
        root=True,
    ),
    Setting(
        title="loopback, two nodes",
        environ=by_hand(0, 2) | NODES,
        prepare=named("10.0.0.5"),
        inside=docker_and_eth0,
        expect=("DDP111",),
        code=1,
        root=True,
    ),
    Setting(title="no such name", environ=by_hand(0, 2, "no-such-host.invalid"), expect=("DDP201",), code=1),
    Setting(title="a port in it", environ=by_hand(0, 2, "127.0.0.1:29500"), expect=("DDP204",), code=1),
    Setting(title="a URL", environ=by_hand(1, 2, "tcp://127.0.0.1"), expect=("DDP204",), code=1),
    Setting(
        title="no route",
        environ=by_hand(1, 2, "10.9.9.9"),
        prepare=only_loopback,
        expect=("DDP204",),
        code=1,
        root=True,
    ),
    Setting(title="no loopback", prepare=lambda folder: unshare(CLONE_NEWNET), expect=("DDP508",), code=1, root=True),
    Setting(title="no address", environ=by_hand(0, 2, ""), expect=("DDP204",), code=1, quick=True),
    Setting(title="no such port", environ=by_hand(0, 2) | {"MASTER_PORT": "99999"}, expect=("DDP204",), code=1),
    Setting(title="a rank that is none", environ=by_hand(0, 2) | {"RANK": "x"}, expect=("DDP102",), code=1, quick=True),
    Setting(title="a world of -1", environ=by_hand(0, 2) | {"WORLD_SIZE": "-1"}, expect=("DDP102",), code=1),
    Setting(title="a broken mask", environ={"CUDA_VISIBLE_DEVICES": "0,,7"}, expect=("DDP413",), code=1),
    Setting(title="gloo's interface", environ={"GLOO_SOCKET_IFNAME": "eth99"}, expect=("DDP301",), code=1),
    Setting(
        title="debian's name, two nodes",
        environ=by_hand(0, 2, "10.0.0.5") | NODES,
        prepare=named("127.0.1.1"),
        inside=docker_and_eth0,
        expect=("DDP202",),
        code=1,
        root=True,
    ),
    Setting(title="leaked LOCAL_RANK", environ={"LOCAL_RANK": "0"}, expect=("DDP110",)),
    Setting(title="leaked NODE_RANK", environ={"NODE_RANK": "1"}, expect=("DDP110",)),
    Setting(title="leaked SLURM_NTASKS", environ={"SLURM_NTASKS": "2"}, expect=("DDP110",)),
    Setting(
        title="leaked agent store",
        environ={"TORCHELASTIC_USE_AGENT_STORE": "True"},
        expect=("DDP110",),
        code=1,
        quick=True,
    ),
    Setting(
        title="a nameserver that does not answer",
        inside=dead_nameserver,
        expect=("DDP201",),
        code=None,
        root=True,
    ),
    Setting(title="1 MiB", prepare=shm_of("1m"), expect=("DDP405",), root=True),
    Setting(title="64 open files", prepare=no_file_limit(64), expect=("DDP503",)),
    Setting(title="threads", arguments=("--script", "live/hangs/threads_as_ranks.py"), expect=("DDP103",), code=1),
]


def called(setting: Setting, folder: Path) -> tuple[int, dict[str, Any]]:
    """The exit code and the report of `run` in a setting; `folder` is for its files."""
    with ExitStack() as stack:
        port = stack.enter_context(listening(setting.listener)) if setting.listener else free_port()
        environ = KEPT | {name: value.replace("{port}", str(port)) for name, value in setting.environ.items()}
        environ["PYTHONPATH"] = PATHS
        arguments = [str(TESTS / each) if each.endswith(".py") else each for each in setting.arguments]
        argv = [sys.executable, "-m", "ddp_doctor", "run", "--format", "json", *arguments]
        if setting.inside:
            inside = stack.enter_context(room(folder))
            setting.inside(inside)
            inside.settle()
            argv = inside.argv(*argv)
        prepare = setting.prepare
        done = subprocess.run(
            argv,
            env=environ,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=(lambda: prepare(folder)) if prepare else None,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)


def serious(report: dict[str, Any]) -> list[str]:
    """Ids at warning or above, in the report's order."""
    return [finding["id"] for finding in report["findings"] if finding["severity"] != "note"]
