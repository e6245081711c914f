"""Finds the first step between the PCI bus and torch at which a node's GPUs are no longer seen."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import msgspec

from ddp_doctor.facts.gpu import CUDA_ERROR_NO_DEVICE, GapStep, GpuGap
from ddp_doctor.facts.gpu_views import READS, GpuViews, gpu_views
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts, Subject
from ddp_doctor.readers.cuda_mask import MaskReading, read_mask

MASK = "CUDA_VISIBLE_DEVICES"

BECAUSE: dict[GapStep, str] = {
    "device": "NCCL has nothing to run on here; Gloo works, and a CUDA build of torch does no harm",
    "silent-driver": "every rank asks the driver the same question when it first touches a GPU, and waits as long",
    "driver": "a rank that touches a GPU fails at once, and the others wait for it",
    "nvml-library": "NCCL loads NVML when it starts and gives up without it; ranks that have it wait for this one",
    "cuda-library": "NVML and nvidia-smi count GPUs without CUDA; nothing can run on them, and torch's device_count(), "
    "which asks NVML, may still say that they are there",
    "nvml": "NCCL initialises NVML before anything else and gives up; ranks where it works wait for this one",
    "device-node": "CUDA opens this file in each process and finds no device without it",
    "cuda": "each process that uses a GPU begins with this call, so every rank here fails",
    "mask": "CUDA reports no mistake in CUDA_VISIBLE_DEVICES: what it does not like is simply not visible",
    "torch": "the driver side is fine, so torch itself or its libraries refuse",
}
SYNTAX = ("empty", "negative", "unreadable", "mixed", "duplicate")


def gaps(facts: Facts) -> list[Fact]:
    """At most one GpuGap per node; none where all views agree, or where they cannot be compared."""
    return [gap for seen in gpu_views(facts) for gap in list(_gaps(seen))[:1]]


def mask_of(seen: GpuViews) -> MaskReading | None:
    """How CUDA reads this node's mask; None where none is set."""
    if seen.node is None or MASK not in seen.node.variables:
        return None
    whole = seen.whole if seen.whole is not None and seen.whole.works else None
    mig = tuple(uuid for gpu in seen.gpus for uuid in gpu.mig_uuids)
    uuids = [] if whole is None else [device.gpu_uuid for device in whole.devices]
    return read_mask(
        seen.node.variables[MASK],
        count=whole.count if whole is not None and not mig else None,
        uuids=(*uuids, *mig),
    )


def _gaps(seen: GpuViews) -> Iterator[GpuGap]:
    """What is missing, in the order of the steps; a malformed mask comes first because it is so on any machine."""
    node, driver, cuda = seen.node, seen.driver, seen.cuda

    def gap(step: GapStep, meaning: str, *, on_purpose: bool = False) -> GpuGap:
        return GpuGap(
            subject=Subject(host=seen.host),
            source=MASK if step == "mask" else "the views of this node side by side",
            step=step,
            meaning=meaning,
            because=BECAUSE[step],
            on_purpose=on_purpose,
        )

    mask = mask_of(seen)
    if mask is not None and mask.fault and (mask.fault in SYNTAX or _confirmed(seen, mask)):
        mended = mask.mended if mask.fault in ("empty", "duplicate") else ",".join(mask.seen)
        yield msgspec.structs.replace(gap("mask", _about_mask(seen, mask)), malformed=True, mended=mended)
    if driver is not None and driver.unanswered and not seen.gpus:
        yield gap("silent-driver", f"{driver.unanswered} gave no answer in {driver.seconds:.0f} s")
    if cuda is not None and cuda.unanswered:
        yield gap("silent-driver", f"{cuda.unanswered} gave no answer in {cuda.seconds:.0f} s")
    if node is None or driver is None or cuda is None or driver.unanswered:
        return
    if not node.has_gpu and not driver.works and not cuda.works and (seen.whole is None or not seen.whole.works):
        if node.pci is not None:
            yield gap("device", "there is no NVIDIA GPU on the PCI bus", on_purpose=True)
        return
    if not driver.library and not cuda.library:
        loaded = f"the kernel module {node.module_version} is loaded" if node.module_version else "no driver is loaded"
        yield gap("driver", f"{loaded}, and neither libcuda.so.1 nor libnvidia-ml.so.1 is here")
    if not driver.library:
        yield gap("nvml-library", "libcuda.so.1 is here, but libnvidia-ml.so.1 is not")
    if not cuda.library:
        yield gap("cuda-library", f"NVML counts {driver.gpus} GPUs, but libcuda.so.1 is not here")
    yield from (gap("device-node", meaning) for meaning in _device_node(seen))
    if driver.code:
        yield gap("nvml", f"NVML does not start: {driver.status} ({driver.code})")
    # under a mask CUDA's own state shows only in the look without it
    whole = seen.whole or cuda
    if whole.code and not (cuda.mask is not None and whole.masked):
        yield gap("cuda", f"cuInit returns {whole.result} ({whole.code})")
    if mask is not None and mask.hides_all:
        # Slurm writes this for a step that asked for no GPU; the other ways to hide them are people's own
        yield gap("mask", _about_mask(seen, mask), on_purpose="NoDevFiles" not in mask.entries)
    if cuda.works and cuda.count and seen.torch is not None and seen.torch.built and not seen.torch.available:
        yield gap("torch", f"CUDA sees {cuda.count} devices, torch does not: {seen.torch.error or 'no reason given'}")


def _about_mask(seen: GpuViews, mask: MaskReading) -> str:
    written = seen.node.variables[MASK] if seen.node else ""
    return f"CUDA_VISIBLE_DEVICES={written}: {mask.meaning}"


def _confirmed(seen: GpuViews, mask: MaskReading) -> bool:
    """Whether CUDA itself saw fewer devices under this mask than it names."""
    cuda = seen.cuda
    return cuda is not None and (
        cuda.code == CUDA_ERROR_NO_DEVICE or (cuda.works and (cuda.count or 0) < len(mask.entries))
    )


def _device_node(seen: GpuViews) -> Iterator[str]:
    """A device node that is missing or refuses, where CUDA does not come up without it."""
    node, whole = seen.node, seen.whole or seen.cuda
    if node is None or node.wsl or whole is None or whole.works:
        return
    for device in node.nodes:
        if device.code == errno.EPERM:
            yield f"{device.path} may not be opened: {device.error}, which is how a cgroup refuses a device"
        elif device.code == errno.EACCES:
            yield f"{device.path} ({device.mode}, owner {device.owner}) may not be opened: {device.error}"
        elif device.code is not None and device.code != errno.EBUSY:
            yield f"{device.path} does not open: {device.error}"
    there = {device.path for device in node.nodes}
    for path in ("/dev/nvidiactl", "/dev/nvidia-uvm"):
        if path not in there:
            yield f"{path} does not exist"
    if not any(path.removeprefix("/dev/nvidia").isdigit() for path in there):
        yield "there is no /dev/nvidia0 or other GPU device"


INTERPRETER = Interpreter(reads=READS, gives=(GpuGap,), interpret=gaps)
