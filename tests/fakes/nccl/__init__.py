"""The real libnccl on a described GPU node, without a GPU: see redirect.c, runtime.c and kernel.c.

Each rank gets a folder of its own with the fake driver libraries and the node's description, so ranks can differ. What
the environment variable DDP_DOCTOR_TEST_NCCL names (or `~/.cache/ddp-doctor/nccl`) holds one `<version>/libnccl.so.2` for each
version; `scripts/fetch_nccl.py` fills it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
from own_folder import own_folder

from ddp_doctor.host import Host
from ddp_doctor.probes.communicator import Plan
from fakes import node as described
from fakes.node import Node, Rule

HERE = Path(__file__).parent
SOURCE = HERE.parent / "source"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
FOR_TORCH = "libruntime-for-torch.so"


def folder_of_versions() -> Path:
    return Path(os.environ.get("DDP_DOCTOR_TEST_NCCL") or Path.home() / ".cache" / "ddp-doctor" / "nccl")


def libnccl(version: str) -> Path:
    return folder_of_versions() / version / "libnccl.so.2"


def unpacked() -> list[str]:
    """The versions that can run here."""
    folder = folder_of_versions()
    return [each.name for each in folder.iterdir() if not why_not(each.name)] if folder.is_dir() else []


def why_not(version: str) -> str:
    """Why this version cannot be run here; empty if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the fake CUDA runtime is for Linux on x86-64"
    if shutil.which("gcc") is None:
        return "no gcc to build the fake CUDA runtime with"
    if not libnccl(version).exists():
        return f"no {libnccl(version)}: python scripts/fetch_nccl.py {version}"
    return ""


@cache
def built() -> Path:
    """The folder with the compiled libraries, once per test run."""
    folder = own_folder("nccl")
    flags = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC"]

    def build(soname: str, *sources: Path) -> None:
        link = ["-shared", f"-Wl,-soname,{soname}", "-o", str(folder / soname)]
        subprocess.run([*flags, *link, *map(str, sources), "-ldl", "-lpthread"], check=True)

    # these two only record the call in the description's own libcuda: here they work
    renamed = [f"-D{name}=only_recorded_{name}" for name in ("cuMemAlloc_v2", "cuDevicePrimaryCtxRetain")]
    device_queries = folder / "cuda.o"
    subprocess.run([*flags, *renamed, "-c", str(SOURCE / "cuda.c"), "-o", str(device_queries)], check=True)
    runtime = [HERE / name for name in ("runtime.c", "kernel.c", "redirect.c")]
    build("libcuda.so.1", *runtime, SOURCE / "node.c", device_queries)
    build(FOR_TORCH, HERE / "runtime_for_torch.c")
    build("libnvidia-ml.so.1", HERE / "nvml_for_nccl.c", SOURCE / "nvml.c", SOURCE / "node.c")
    return folder


class Stage(msgspec.Struct, frozen=True):
    """Where the ranks of one trial meet: a folder per rank, and one file for the effect of their kernels."""

    folder: Path

    def plan(
        self,
        rank: int,
        world_size: int,
        version: str,
        *,
        node: Node | None = None,
        device: int | None = None,
        root: bool | None = None,
        environ: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        meeting: int | None = None,
        name: str = "",
    ) -> Plan:
        """One rank on that libnccl. `prefix` starts it in another namespace; `meeting` is how many kernels must meet."""
        return Plan(
            rank=rank,
            world_size=world_size,
            device=rank if device is None else device,
            libnccl=str(libnccl(version)),
            root=rank == 0 if root is None else root,
            environ=self.environ(node or healthy(world_size), name or f"rank{rank}", meeting or world_size)
            | (environ or {}),
            python=(*prefix, sys.executable, "-I", "-S") if prefix else None,
        )

    def environ(self, node: Node, name: str, meeting: int) -> dict[str, str]:
        """What loads the fakes for this node into a process."""
        place = self.folder / name
        place.mkdir()
        for soname in LIBRARIES:
            (place / soname).symlink_to(built() / soname)
        (place / "node.txt").write_text(described.flat(node))
        (place / "meeting.txt").write_text(f"{meeting} {self.folder / 'meeting'}\n")
        return {"LD_LIBRARY_PATH": str(place), "LD_PRELOAD": str(place / "libcuda.so.1")}

    def environ_for_torch(self, node: Node, name: str, meeting: int) -> dict[str, str]:
        """The same for a process with a CUDA build of torch: its libcudart does not come to work."""
        found = self.environ(node, name, meeting)
        return found | {"LD_PRELOAD": f"{built() / FOR_TORCH}:{found['LD_PRELOAD']}"}

    def calls(self, name: str) -> list[str]:
        """The C name of every driver call a rank made, in order."""
        log = self.folder / name / "calls.log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def host(self, seconds: float = 60.0, **environ: str) -> Host:
        plain = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        return Host(seconds, environ=plain | environ)


def healthy(gpus: int) -> Node:
    """That many H100 that reach each other."""
    node = described.read_node("h100x8")
    group = msgspec.structs.replace(node.gpus[0], count=gpus)
    return msgspec.structs.replace(node, gpus=(group,))


def with_rules(node: Node, *rules: Rule) -> Node:
    return msgspec.structs.replace(node, rules=(*node.rules, *rules))
