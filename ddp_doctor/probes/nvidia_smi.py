"""The last resort for the driver's view: nvidia-smi, asked only where a GPU is there and NVML cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import DriverGpu, DriverState, GpuNode
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes.gpu_driver import GPU_SECONDS, HOW_TO_GET
from ddp_doctor.readers.nvidia_smi import ARGV, read_query


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """A DriverGpu per GPU that nvidia-smi lists; nothing where NVML answers or nvidia-smi does not exist."""
    state, node = facts.first(DriverState), facts.first(GpuNode)
    if state is None or state.library or node is None or not node.has_gpu:
        return
    answer = host.run(ARGV, seconds=GPU_SECONDS)
    subject = Subject(host=host.name)
    if answer.status in ("timeout", "crashed"):
        yield Absent(
            kind=DriverGpu.kind(),
            about=subject,
            status=answer.status,
            reason=f"nvidia-smi: {answer.reason}",
            how_to_get=HOW_TO_GET,
        )
    elif answer.status == "ok":
        yield from read_query(answer.printed, subject)


PROBES = (
    Probe(
        name="nvidia-smi",
        gives=(DriverGpu,),
        builds_on=(DriverState, GpuNode),
        take=take,
        risk="gpu",
        seconds=GPU_SECONDS,
    ),
)
