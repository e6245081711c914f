"""What the kernel and this environment show of GPUs without asking the driver."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import DeviceNode, GpuNode, PciGpu
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes.gpu_driver import GPU_SECONDS, HOW_TO_GET

VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DISABLE_CONTROL", "CUDA_DEVICE_MEMORY_LIMIT*",
    "CUDA_DEVICE_SM_LIMIT", "CUDA_MPS_*", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
    "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
)  # fmt: skip


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """One GpuNode; a device node that does not open in time leaves out only what comes after it."""
    subject = Subject(host=host.name)
    pipes = host.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    answer = host.ask("gpu_node", {"root": host.root, "mps_pipe_directory": pipes}, seconds=GPU_SECONDS)
    said: dict[str, Any] = {}
    look = ""
    for message in answer.messages:
        said = message.get("node", said)
        look = message.get("look", look)
    if said:
        pci = said["pci"]
        yield GpuNode(
            subject=subject,
            source="/sys/bus/pci, /dev, /proc/driver/nvidia",
            pci=None if pci is None else msgspec.convert(pci, tuple[PciGpu, ...]),
            nvswitches=said["nvswitches"],
            nodes=msgspec.convert(said.get("nodes", ()), tuple[DeviceNode, ...]),
            module_version=module_version(said["module"]),
            rocm=said["rocm"],
            wsl=said["wsl"],
            container=said["container"] or ("Kubernetes" if "KUBERNETES_SERVICE_HOST" in host.environ else ""),
            own_pids=said["own_pids"],
            mps=said["mps"],
            fabric_manager=said["fabric_manager"],
            preloaded=tuple(re.split(r"[\s:]+", f"{host.environ.get('LD_PRELOAD', '')} {said['preload']}".strip()))
            if host.environ.get("LD_PRELOAD") or said["preload"].strip()
            else (),
            variables={
                name: value
                for name, value in sorted(host.environ.items())
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in VARIABLES)
            },
        )
    if answer.status != "ok":
        reason = f"{look}: {answer.reason}" if look else answer.reason
        yield Absent(kind=GpuNode.kind(), about=subject, status=answer.status, reason=reason, how_to_get=HOW_TO_GET)


def module_version(text: str) -> str:
    """The version in /proc/driver/nvidia/version, of the proprietary or the open kernel module."""
    found = re.search(r"Kernel Module[^\d\n]*(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)*)", text)
    return found.group(1) if found else ""


PROBES = (Probe(name="gpu-node", gives=(GpuNode,), take=take, risk="gpu", seconds=GPU_SECONDS),)
