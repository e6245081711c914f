"""Who holds which GPU of a running job's node, as NVML tells; asked only where a process of the job uses CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import GpuProcess
from ddp_doctor.facts.job import Process
from ddp_doctor.facts.nccl_live import GpuUse
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, Subject

SECONDS = 5.0
SOURCE = "NVML, running processes"
MACHINES_PIDS = "pid:[4026531836]"


def take(host: Host, known: Facts) -> Iterator[Observation]:
    """A GpuUse per GPU. A driver that does not answer is no news here: what its ranks stand in tells more."""
    binding = find_spec("pynvml")
    if binding is None or binding.origin is None or not any(each.cuda or each.devices for each in known[Process]):
        return
    own = str(Path("/proc/self/ns/pid").readlink()) != MACHINES_PIDS
    answer = host.ask("nvml", {"binding": binding.origin, "proc": str(Path(host.root, "proc"))}, seconds=SECONDS)
    for message in answer.messages:
        gpu = message.get("gpu")
        if not gpu or gpu.get("mig"):
            continue
        described = ", ".join(filter(None, (gpu.get("name"), gpu.get("pci"))))
        yield GpuUse(
            subject=Subject(host=host.name),
            source=SOURCE,
            index=gpu["index"],
            uuid=gpu.get("uuid") or "",
            label=f"GPU {gpu['index']} ({described})" if described else f"GPU {gpu['index']}",
            own_pids=own,
            processes=msgspec.convert(gpu.get("processes", ()), tuple[GpuProcess, ...]),
        )


PROBE = Probe(name="gpu-use", gives=(GpuUse,), builds_on=(Process,), take=take, risk="gpu")
