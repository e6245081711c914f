"""The GPUs of a node as the kernel, the driver (NVML) and CUDA (libcuda) each see them.

The three views are kept apart because faults show where they part. One GPU has one `uuid` in all of them; a fact about
a pair of GPUs names both by UUID.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.model import Fact

ComputeMode = Literal["default", "exclusive-thread", "prohibited", "exclusive-process"]
FabricState = Literal["not-supported", "not-started", "in-progress", "completed"]
Virtualization = Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"]

CUDA_SUCCESS = 0
CUDA_ERROR_NO_DEVICE = 100
NVML_GPU_IS_LOST = 15
NVML_LIBRARY_NOT_FOUND = 12


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that NVML lists on a GPU. `mib` is the GPU memory it holds, None where the driver does not say.

    `state` and `parent` are from /proc/PID/stat; the state is empty where this PID namespace has no such process.
    """

    pid: int
    use: Literal["compute", "graphics", "mps"] = "compute"
    mib: int | None = None
    state: str = ""
    parent: int | None = None
    command: str = ""

    def text(self) -> str:
        """`PID 4121 (python, state D) 20480 MiB`."""
        who = f"{self.command}, state {self.state}" if self.state else "no such process here"
        return f"PID {self.pid} ({who})" + ("" if self.mib is None else f" {self.mib} MiB")


class CallError(msgspec.Struct, frozen=True, kw_only=True):
    """A driver call that failed, with the library's own number and text."""

    call: str
    code: int
    text: str


class DriverGpu(Fact, frozen=True, kw_only=True):
    """One GPU as NVML answers; `index` is nvidia-smi's (PCI order, no mask). None means that the driver did not say.

    Memory is in MiB. `ecc_uncorrected` counts since the driver was loaded. `unanswered` is the call that hung.
    """

    index: int
    uuid: str = ""
    name: str = ""
    pci: str = ""
    memory_total: int | None = None
    memory_free: int | None = None
    memory_used: int | None = None
    compute_mode: ComputeMode | None = None
    mig: bool | None = None
    mig_uuids: tuple[str, ...] = ()
    ecc_uncorrected: int | None = None
    remap_failure: bool | None = None
    remap_pending: bool | None = None
    persistence: bool | None = None
    fabric_state: FabricState | None = None
    fabric_status: int | None = None
    """The NVML return code of the fabric registration; 0 is success."""
    virtualization: Virtualization | None = None
    processes: tuple[GpuProcess, ...] = ()
    errors: tuple[CallError, ...] = ()
    unanswered: str = ""

    @property
    def lost(self) -> CallError | None:
        """The call that said this GPU is gone from the bus or needs a reset."""
        return next((error for error in self.errors if error.code in (NVML_GPU_IS_LOST, 16)), None)

    @property
    def label(self) -> str:
        """`GPU 3 (NVIDIA H100, 00000000:19:00.0)`."""
        described = ", ".join(part for part in (self.name, self.pci) if part)
        return f"GPU {self.index} ({described})" if described else f"GPU {self.index}"

    @property
    def silent(self) -> str:
        return self.text() if self.unanswered else ""

    def text(self) -> str:
        parts = [self.label, self.uuid]
        if self.memory_total:
            parts.append(f"{self.memory_free} of {self.memory_total} MiB free")
        parts += [f"{error.call}: {error.text}" for error in self.errors]
        if self.unanswered:
            parts.append(f"no answer from {self.unanswered}")
        return ", ".join(part for part in parts if part)


class DriverState(Fact, frozen=True, kw_only=True):
    """How NVML, the driver's own library, came up. `code` is nvmlInit's return code, None where it never returned.

    `unanswered` is the call that gave no answer within `seconds`; `slowest` the call that took longest.
    """

    library: bool = True
    """Whether libnvidia-ml.so.1 could be loaded."""
    code: int | None = None
    status: str = ""
    driver_version: str = ""
    cuda_version: str = ""
    """The newest CUDA this driver runs, such as `12.4`."""
    gpus: int | None = None
    seconds: float = 0.0
    slowest: str = ""
    unanswered: str = ""

    @property
    def works(self) -> bool:
        """Whether NVML initialised."""
        return self.code == 0

    @property
    def silent(self) -> str:
        return self.text() if self.unanswered else ""

    def text(self) -> str:
        if not self.library:
            return f"NVML: {self.status}"
        if self.unanswered:
            return f"NVML: no answer from {self.unanswered} in {self.seconds:.1f} s"
        if not self.works:
            return f"nvmlInit: {self.status} ({self.code})"
        return f"driver {self.driver_version}, CUDA {self.cuda_version}, {self.gpus} GPUs, {self.seconds:.1f} s"


class CudaDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device as CUDA enumerates it. `uuid` starts with `MIG-` for a MIG instance; `gpu_uuid` is the GPU it lies on."""

    ordinal: int
    uuid: str = ""
    gpu_uuid: str = ""
    name: str = ""
    pci: str = ""


class CudaView(Fact, frozen=True, kw_only=True):
    """What libcuda answers in a process with this environment; no context was created.

    `mask` is CUDA_VISIBLE_DEVICES (None: not set) and `order` CUDA_DEVICE_ORDER; `masked` is False for the second look,
    from which the mask was removed. `code` is cuInit's result, None where it never returned.
    """

    masked: bool = True
    mask: str | None = None
    order: str = ""
    library: bool = True
    """Whether libcuda.so.1 could be loaded."""
    code: int | None = None
    result: str = ""
    """cuInit's result by name, such as `CUDA_ERROR_NO_DEVICE`."""
    cuda_version: str = ""
    """The CUDA version of the libcuda in use (a forward-compatibility package raises it)."""
    count: int | None = None
    devices: tuple[CudaDevice, ...] = ()
    seconds: float = 0.0
    unanswered: str = ""

    @property
    def works(self) -> bool:
        """Whether cuInit succeeded."""
        return self.code == CUDA_SUCCESS

    @property
    def silent(self) -> str:
        return self.text() if self.unanswered else ""

    def text(self) -> str:
        under = f" under CUDA_VISIBLE_DEVICES={self.mask}" if self.mask is not None else ""
        if not self.library:
            return f"libcuda: {self.result}"
        if self.unanswered:
            return f"libcuda: no answer from {self.unanswered} in {self.seconds:.1f} s"
        if not self.works:
            return f"cuInit: {self.result} ({self.code}){under}"
        devices = "1 device" if self.count == 1 else f"{self.count} devices"
        return f"CUDA {self.cuda_version} sees {devices}{under}"


class PciGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI device of NVIDIA; `kernel_driver` is empty where none is bound."""

    address: str
    device: str = ""
    kernel_driver: str = ""


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True):
    """One file in /dev that CUDA opens. `error` is what open() said to this user, empty where it opened."""

    path: str
    mode: str = ""
    owner: str = ""
    error: str = ""
    code: int | None = None


class GpuNode(Fact, frozen=True, kw_only=True):
    """What the kernel shows of GPUs without asking the driver. `pci` is None where the PCI bus cannot be seen."""

    pci: tuple[PciGpu, ...] | None = None
    nvswitches: int = 0
    nodes: tuple[DeviceNode, ...] = ()
    module_version: str = ""
    """Version of the loaded NVIDIA kernel module, empty where none is loaded."""
    rocm: bool = False
    """Whether /dev/kfd, the ROCm driver's node, exists."""
    wsl: bool = False
    container: str = ""
    """How it shows that this is a container, empty where it does not."""
    mps: bool = False
    """Whether an MPS control daemon's pipe is there for this environment."""
    fabric_manager: str = ""
    """`systemctl is-active nvidia-fabricmanager`, empty where systemd does not tell."""
    own_pids: bool = False
    """Whether this PID namespace is not the machine's, so that PIDs from the driver may be unknown here."""
    preloaded: tuple[str, ...] = ()
    """Libraries that LD_PRELOAD or /etc/ld.so.preload loads into every process."""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """The variables of this environment that change which GPUs are seen or how they are shared."""

    @property
    def has_gpu(self) -> bool:
        """Whether the kernel shows an NVIDIA GPU (on WSL it is not a PCI device)."""
        return bool(self.pci) or (self.wsl and any(node.path == "/dev/dxg" for node in self.nodes))

    def text(self) -> str:
        seen = "PCI bus not visible" if self.pci is None else f"{len(self.pci)} NVIDIA GPUs on the PCI bus"
        module = f"kernel module {self.module_version}" if self.module_version else "no NVIDIA kernel module"
        refused = [f"{node.path}: {node.error}" for node in self.nodes if node.error]
        return ", ".join((seen, module, f"{len(self.nodes)} device nodes", *refused))


GapStep = Literal[
    "device", "silent-driver", "driver", "nvml-library", "cuda-library", "nvml", "device-node", "cuda", "mask", "torch"
]


class GpuGap(Fact, frozen=True, kw_only=True):
    """Where a node's GPUs drop out of view on the way from the bus to torch: the first step that no longer has them.

    `meaning` says what happens there and `because` what that does to a job. `on_purpose` marks what a run on the CPU
    usually has. `malformed` and `mended` are about a mask: its text is faulty, and what it could be instead.
    """

    step: GapStep
    meaning: str
    because: str
    on_purpose: bool = False
    malformed: bool = False
    mended: str = ""

    def text(self) -> str:
        return self.meaning


class DriverClash(Fact, frozen=True, kw_only=True):
    """Versions on the way from the kernel module to torch's CUDA that do not go together.

    `between`: the kernel module and the driver's libraries, a driver too old for torch's CUDA, or a
    forward-compatibility libcuda that this GPU or driver does not take.
    """

    between: Literal["module-library", "driver-torch", "compat-driver"]
    meaning: str
    because: str
    measured: bool = True
    """False where CUDA itself could not be asked and NVML's word stands for it."""

    def text(self) -> str:
        return self.meaning
