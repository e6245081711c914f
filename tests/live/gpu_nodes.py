"""The whole `ddp-doctor run` on a described GPU node: a mount namespace shows its /proc, /sys and /dev, and the node's own
driver libraries, torch and libnccl are what the command finds. Needs root."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import namespaces
from fakes import torch_cuda
from fakes.nccl import Stage, libnccl
from fakes.node import Node, Process, set_up, write_kernel_files

KEPT_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "shm", "pts")
AS_RANK_0 = (
    'if [ "$RANK" = 0 ]; then "$@"; code=$?; touch "$0"; exit $code; else until [ -e "$0" ]; do sleep 0.05; done; fi'
)
SLEEPER = "import time; time.sleep(600)"
STUCK = "#include <unistd.h>\nint main(void) { if (!vfork()) { pause(); _exit(0); } }"
HARMFUL = {"cuCtxCreate_v2", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cudaMalloc", "cuMemCreate"}
"""Calls that take a context or memory on a GPU."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One call of `run`: seconds to the end of its output, its exit code, its report, and the driver calls it made."""

    seconds: float
    code: int
    report: dict[str, Any]
    text: str
    calls: list[str]

    def ids(self, *severities: str) -> list[str]:
        return sorted(found["id"] for found in self.report["findings"] if found["severity"] in severities)

    @property
    def claims(self) -> list[str]:
        return self.ids("error", "warning")

    @property
    def notes(self) -> list[str]:
        """Of this room: what the machine itself has to note is not the node's."""
        return [found for found in self.ids("note") if found.startswith("DDP4") and found != "DDP405"]


class Site(msgspec.Struct, frozen=True):
    """A torch for nodes of one CUDA version and NCCL; made once, since it costs more than a run."""

    path: Path
    nccl: str

    @classmethod
    def make(cls, folder: Path, cuda: str, nccl: str = "") -> Site:
        return cls(torch_cuda.build(folder, cuda, libnccl(nccl) if nccl else None), nccl)


def run(
    node: Node,
    folder: Path,
    site: Site,
    *arguments: str,
    environ: dict[str, str] | None = None,
    text: bool = False,
    wait: float = 120.0,
) -> Ran:
    """Call `ddp-doctor run` on the node. `folder` is empty; the JSON report is asked for, or the text one."""
    with _holders(node, folder) as node:
        command, variables, place = prepared(node, folder, site)
        form = [] if text else ["--format", "json"]
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, *form, *arguments],
            env=variables | (environ or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: show(node, folder),
            text=True,
        )
        out, errors = process.communicate(timeout=wait)
        seconds = time.monotonic() - started
    assert text or out, errors
    log = place / "calls.log"
    return Ran(
        seconds=seconds,
        code=process.returncode,
        report={} if text else json.loads(out),
        text=out,
        calls=[line.split()[0] for line in log.read_text().splitlines()] if log.exists() else [],
    )


def prepared(node: Node, folder: Path, site: Site) -> tuple[list[str], dict[str, str], Path]:
    """The command line, its environment, and the folder with the node's libraries."""
    root = folder / "root"
    if site.nccl and set(node.libraries) == {"nvml", "cuda"}:
        mask = node.environ.get("CUDA_VISIBLE_DEVICES", "")
        fakes = Stage(folder).environ(node, "lib", len(mask.split(",")) if mask else len(node.all_gpus))
        write_kernel_files(node, root)
    else:
        fakes = {"LD_LIBRARY_PATH": str(set_up(node, folder).libraries)}
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join([str(site.path), *sys.path] if node.torch_cuda else sys.path),
        "CUDA_MPS_PIPE_DIRECTORY": str(root / "tmp/nvidia-mps"),
        **fakes,
        **node.environ,
    }
    if node.kernel.preload:
        library = folder / Path(node.kernel.preload).name
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(library)], check=True)
        variables["LD_PRELOAD"] = " ".join([str(library), *([fakes["LD_PRELOAD"]] if "LD_PRELOAD" in fakes else [])])
    command = [sys.executable, "-m", "ddp_doctor", "run"]
    if node.local_world_size:
        ranks = f"--nproc-per-node={node.local_world_size}"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", ranks, "--no-python"]
        command = [*torchrun, "sh", "-c", AS_RANK_0, str(folder / "ended"), *command, "--alone"]
    return command, variables, folder / "lib"


def show(node: Node, folder: Path) -> None:
    """In the child, before it becomes the command: let the kernel's files be the node's."""
    root = folder / "root"
    namespaces.unshare(namespaces.CLONE_NEWNS)
    namespaces.mount(str(root / "sys/bus/pci/devices"), "/sys/bus/pci/devices", "", namespaces.MS_BIND)
    namespaces.mount("tmpfs", "/proc/driver", "tmpfs")
    version = root / "proc/driver/nvidia/version"
    if version.exists():
        Path("/proc/driver/nvidia").mkdir()
        Path("/proc/driver/nvidia/version").write_text(version.read_text())
    if node.kernel.wsl:
        namespaces.bind_file((root / "proc/version").read_text(), "/proc/version", folder)
    # the tests may run in a virtual machine, and the node is none
    processors = Path("/proc/cpuinfo").read_text().replace(" hypervisor", "")
    namespaces.bind_file(processors, "/proc/cpuinfo", folder)
    namespaces.bind_file("0::/docker/4242\n" if node.kernel.container else "0::/\n", "/proc/1/cgroup", folder)
    devices = root / "dev"
    devices.mkdir(exist_ok=True)
    for name in KEPT_DEVICES:
        place = devices / name
        place.mkdir() if Path("/dev", name).is_dir() else place.touch()
        namespaces.mount(f"/dev/{name}", str(place), "", namespaces.MS_BIND)
    (devices / "fd").symlink_to("/proc/self/fd")
    namespaces.mount(str(devices), "/dev", "", namespaces.MS_BIND | namespaces.MS_REC)


@contextmanager
def _holders(node: Node, folder: Path) -> Iterator[Node]:
    """The node with real processes for the described ones: one that sleeps, or one in state D."""
    started = {number: _start(process, folder) for number, process in node.processes.items()}
    pids = {int(number): process.pid for number, process in started.items()}
    groups = []
    for group in node.gpus:
        held = tuple(msgspec.structs.replace(each, pid=pids.get(each.pid, each.pid)) for each in group.processes)
        groups.append(msgspec.structs.replace(group, processes=held))
    try:
        yield msgspec.structs.replace(node, gpus=tuple(groups), processes={})
    finally:
        for process in started.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(process: Process, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SLEEPER]
    if process.state == "D":
        # the parent of a vfork sleeps uninterruptibly until its child ends
        command = [str(folder / "stuck")]
        subprocess.run(["gcc", "-x", "c", "-", "-o", command[0]], input=STUCK.encode(), check=True)
    started = subprocess.Popen(command, start_new_session=True)
    while process.state == "D" and b") D" not in Path(f"/proc/{started.pid}/stat").read_bytes():
        time.sleep(0.01)
    return started
