"""Compares the versions of kernel module, driver libraries and torch's CUDA."""

from __future__ import annotations

from ddp_doctor.facts.gpu import DriverClash
from ddp_doctor.facts.gpu_views import READS, GpuViews, gpu_views
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts, Subject

NVML_VERSION_MISMATCH = 18
SYSTEM_DRIVER_MISMATCH = 803
COMPAT_NOT_SUPPORTED = 804
OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The Linux driver from which every minor release of a CUDA major runs (minor-version compatibility, CUDA >= 11)."""


def clashes(facts: Facts) -> list[Fact]:
    """At most one DriverClash per node."""
    clashes = (_clash(seen) for seen in gpu_views(facts))
    return [clash for clash in clashes if clash is not None]


def _clash(seen: GpuViews) -> DriverClash | None:
    driver, cuda = seen.driver, seen.cuda
    code = cuda.code if cuda else None
    subject = Subject(host=seen.host)
    if (driver is not None and driver.code == NVML_VERSION_MISMATCH) or code == SYSTEM_DRIVER_MISMATCH:
        module = f", the kernel module is {seen.node.module_version}" if seen.node and seen.node.module_version else ""
        return DriverClash(
            subject=subject,
            source="nvmlInit, cuInit, /proc/driver/nvidia/version",
            between="module-library",
            meaning=f"the NVIDIA kernel module and the driver's libraries are of different versions{module}",
            because="the driver was upgraded while the old kernel module stayed loaded (or a container brought its own "
            "libraries); NCCL stops at `nvmlInit_v2() failed`, and ranks on other nodes wait for this one",
        )
    if code == COMPAT_NOT_SUPPORTED:
        return DriverClash(
            subject=subject,
            source="cuInit",
            between="compat-driver",
            meaning="a forward-compatibility libcuda is loaded, and this GPU or driver does not take it (804)",
            because="such libraries, as in CUDA images' /usr/local/cuda/compat, work on data-centre GPUs only",
        )
    return _too_old(seen, subject)


def _too_old(seen: GpuViews, subject: Subject) -> DriverClash | None:
    """From CUDA 11 on any driver of the same major runs any minor, so only the major decides."""
    cuda, driver = seen.cuda, seen.driver
    asked = cuda is not None and bool(cuda.cuda_version)
    runs = cuda.cuda_version if cuda is not None and asked else driver.cuda_version if driver else ""
    wanted = seen.torch_cuda
    if not runs or not wanted or (seen.torch is not None and seen.torch.available):
        return None
    major = int(wanted.split(".")[0])
    if int(runs.split(".")[0]) >= major:
        return None
    version = f" {driver.driver_version}" if driver and driver.driver_version else ""
    oldest = f", which wants {OLDEST_DRIVER[major]} or newer" if major in OLDEST_DRIVER else ""
    return DriverClash(
        subject=subject,
        source="cuDriverGetVersion" if asked else "NVML",
        between="driver-torch",
        meaning=f"the driver{version} runs CUDA {runs}, torch is built with CUDA {wanted}{oldest}",
        because="torch says that the driver is too old and sees no GPU; within one CUDA major any minor would do",
        measured=asked,
    )


INTERPRETER = Interpreter(reads=READS, gives=(DriverClash,), interpret=clashes)
