"""Fake GPU nodes: a description in nodes/*.toml becomes fake driver libraries and a folder that stands for /.

The libraries are real shared objects: the doctor's own workers load them through LD_LIBRARY_PATH, pynvml and ctypes
included. The folder holds the few kernel files a probe reads. Device nodes in it are plain files, so what open() says
of a real device (a cgroup's EPERM, say) is not shown here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
from own_folder import own_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}
COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
VIRTUALIZATIONS = ("none", "passthrough", "vgpu")
FABRIC_STATES = ("not-supported", "not-started", "in-progress", "completed")
MIB = 1 << 20


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelt key in a description is an error, not a healthy node."""


class Driver(Strict, frozen=True, kw_only=True):
    version: str = "570.86.15"
    cuda: str = "12.8"


class Holder(Strict, frozen=True, kw_only=True):
    """A process as NVML lists it; it is alive only if the node's `processes` have it."""

    pid: int
    mib: int
    use: str = "compute"


class Gpus(Strict, frozen=True, kw_only=True):
    """`count` equal GPUs. -1 stands for what the model does not support; a higher `speed` comes first in CUDA's order."""

    count: int = 1
    name: str
    memory_gib: int
    used_mib: int = 500
    compute_mode: str = "default"
    persistence: bool = True
    virtualization: str = "none"
    speed: int = 1
    ecc: int = 0
    remap_pending: int = 0
    remap_failure: int = 0
    fabric: str | None = None
    fabric_status: int = 0
    mig: tuple[str, ...] | None = None
    processes: tuple[Holder, ...] = ()


class Rule(Strict, frozen=True, kw_only=True):
    """What one call of NVML or CUDA does, by its C name: fail with a code, hang, or take that many seconds."""

    call: str
    gpu: int = -1
    fail: int | None = None
    hang: bool = False
    sleep: float | None = None


class Kernel(Strict, frozen=True, kw_only=True):
    """What /proc, /sys, /dev, /etc and /tmp show. `devices` None: the usual ones. `pci_extra`: GPUs the driver hides."""

    module: str | None = None
    devices: tuple[str, ...] | None = None
    pci: bool = True
    pci_extra: int = 0
    nvswitches: int = 0
    container: bool = False
    wsl: bool = False
    mps: bool = False
    preload: str = ""


class Process(Strict, frozen=True, kw_only=True):
    command: str
    parent: int
    state: str = "S"


class Torch(Strict, frozen=True, kw_only=True):
    available: bool
    device_count: int
    error: str = ""


class P2p(Strict, frozen=True, kw_only=True):
    """NVML's P2P status of every pair of different GPUs: 0 is OK. `nvlinks`: how many links each has to an NVSwitch."""

    every_pair: int = 0
    nvlinks: int = 0


class Node(Strict, frozen=True, kw_only=True):
    """One described node. `expect` are the ids at warning or above that it must yield, `notes` the others."""

    title: str
    expect: tuple[str, ...]
    notes: tuple[str, ...]
    torch_cuda: str = ""
    libraries: tuple[str, ...] = ("nvml", "cuda")
    environ: dict[str, str] = {}
    local_world_size: int | None = None
    driver: Driver = Driver()
    gpus: tuple[Gpus, ...] = ()
    p2p: P2p = P2p()
    rules: tuple[Rule, ...] = ()
    kernel: Kernel = Kernel()
    processes: dict[str, Process] = {}
    torch: Torch | None = None

    @property
    def all_gpus(self) -> list[Gpus]:
        return [gpu for group in self.gpus for gpu in [group] * group.count]


def read_node(name: str) -> Node:
    """The described node of that name."""
    return msgspec.convert(tomllib.loads((HERE / "nodes" / f"{name}.toml").read_text()), Node)


def node_names() -> list[str]:
    return sorted(path.stem for path in (HERE / "nodes").glob("*.toml"))


def have_compiler() -> bool:
    return shutil.which("gcc") is not None


@cache
def built() -> dict[str, Path]:
    """The compiled libraries, once per test run."""
    folder = own_folder("fakes")
    libraries = {}
    for stem, soname in LIBRARIES.items():
        libraries[stem] = folder / soname
        sources = [HERE / "source" / f"{stem}.c", HERE / "source" / "node.c"]
        subprocess.run(
            ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{soname}",
             "-o", libraries[stem], *sources, "-ldl", "-lpthread"],
            check=True,
        )  # fmt: skip
    return libraries


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a Host can be pointed at."""

    environ: dict[str, str]
    root: Path
    libraries: Path

    def calls(self) -> list[str]:
        """The C name of every call that was made, in order."""
        log = self.libraries / "calls.log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def set_up(node: Node, folder: Path) -> Setup:
    """Lay the node out in an empty folder."""
    libraries, root = folder / "lib", folder / "root"
    libraries.mkdir()
    for stem in node.libraries:
        (libraries / LIBRARIES[stem]).symlink_to(built()[stem])
    (libraries / "node.txt").write_text(flat(node))
    write_kernel_files(node, root)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LD_LIBRARY_PATH": str(libraries)}
    environ["CUDA_MPS_PIPE_DIRECTORY"] = "/tmp/nvidia-mps"
    return Setup(environ=environ | node.environ, root=root, libraries=libraries)


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-{index:012x}"


def pci(index: int) -> str:
    return f"00000000:{index + 1:02X}:00.0"


def flat(node: Node) -> str:
    """The description as the C side reads it, one `key value` per line."""
    major, minor = node.driver.cuda.split(".")
    gpus = node.all_gpus
    lines = [
        f"driver_version {node.driver.version}",
        f"cuda_version {int(major) * 1000 + int(minor) * 10}",
        f"gpus {len(gpus)}",
        f"nvlinks {node.p2p.nvlinks}",
    ]
    for index, gpu in enumerate(gpus):
        values = {
            "uuid": uuid(index),
            "name": gpu.name,
            "pci": pci(index),
            "memory_total": gpu.memory_gib * 1024 * MIB,
            "memory_used": gpu.used_mib * MIB,
            "compute_mode": COMPUTE_MODES.index(gpu.compute_mode),
            "persistence": int(gpu.persistence),
            "virtualization": VIRTUALIZATIONS.index(gpu.virtualization),
            "speed": gpu.speed,
            "ecc": gpu.ecc,
            "remap_pending": gpu.remap_pending,
            "remap_failure": gpu.remap_failure,
            "fabric_state": -1 if gpu.fabric is None else FABRIC_STATES.index(gpu.fabric),
            "fabric_status": gpu.fabric_status,
            "mig": -1 if gpu.mig is None else 1,
        }
        lines += [f"gpu {index} {key} {value}" for key, value in values.items()]
        lines += [f"gpu {index} mig_uuid {instance}" for instance in gpu.mig or ()]
        lines += [f"gpu {index} process {held.pid} {held.mib * MIB} {held.use}" for held in gpu.processes]
        lines += [f"p2p {index} {other} {node.p2p.every_pair}" for other in range(len(gpus)) if other != index]
    for rule in node.rules:
        kind, amount = ("hang", 0.0) if rule.hang else ("fail", rule.fail) if rule.fail else ("sleep", rule.sleep)
        lines.append(f"rule {kind} {rule.call} {rule.gpu} {amount}")
    return "\n".join(lines) + "\n"


def write_kernel_files(node: Node, root: Path) -> None:
    """The files that the kernel of such a node would show."""
    kernel = node.kernel
    write(root / "proc/version", "Linux version 5.15.0-microsoft-standard-WSL2" if kernel.wsl else "Linux version 6.1")
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to("pid:[4026532999]" if kernel.container else "pid:[4026531836]")
    module = node.driver.version if kernel.module is None else kernel.module
    if module:
        write(
            root / "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {module}  Thu 2024\n"
        )
    for number, process in node.processes.items():
        write(root / "proc" / number / "stat", f"{number} ({process.command}) {process.state} {process.parent} 1 1 0\n")
    gpus = len(node.all_gpus)
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for index in range(gpus + kernel.pci_extra if kernel.pci else 0):
        write_pci(bus / pci(index)[4:].lower(), "0x030200")
    for index in range(kernel.nvswitches):
        write_pci(bus / f"0000:c{index}:00.0", "0x068000")
    devices = kernel.devices
    if devices is None:
        devices = ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(gpus)))
    for device in devices:
        write(root / "dev" / device, "")
    if kernel.container:
        write(root / ".dockerenv", "")
    if kernel.preload:
        write(root / "etc/ld.so.preload", kernel.preload + "\n")
    if kernel.mps:
        pipe = root / "tmp/nvidia-mps/control"
        pipe.parent.mkdir(parents=True)
        os.mkfifo(pipe)


def write_pci(place: Path, kind: str) -> None:
    write(place / "vendor", "0x10de\n")
    write(place / "class", f"{kind}\n")
    write(place / "device", "0x2330\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
