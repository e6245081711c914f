"""CUDA's own view: libcuda, asked in a worker that creates no context, under the job's mask and once without it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import CudaDevice, CudaView
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes.gpu_driver import GPU_SECONDS, HOW_TO_GET, cuda_version

MASK = "CUDA_VISIBLE_DEVICES"


def take_masked(host: Host, facts: Facts) -> Iterator[Observation]:
    """What a rank started from this environment would see."""
    return view(host, masked=True)


def take_unmasked(host: Host, facts: Facts) -> Iterator[Observation]:
    """What it would see without the mask; nothing where there is no mask."""
    return view(host, masked=False) if MASK in host.environ else iter(())


def view(host: Host, *, masked: bool) -> Iterator[Observation]:
    """One CudaView; where a call hung or the library crashed, an Absent too, which names the call."""
    subject = Subject(host=host.name)
    started = time.monotonic()
    answer = host.ask("libcuda", {"without": [] if masked else [MASK]}, seconds=GPU_SECONDS)
    said: dict[str, Any] = {}
    devices: list[CudaDevice] = []
    call = ""
    for message in answer.messages:
        call = message.get("call", call)
        if "missing" in message:
            said = {"result": message["missing"], "library": False}
        elif "init" in message:
            said = message["init"]
        elif "device" in message:
            devices.append(msgspec.convert(message["device"], CudaDevice))
    if answer.status == "ok" or (call and not answer.hurried):
        yield CudaView(
            subject=subject,
            source="libcuda.so.1" if masked else f"libcuda.so.1 without {MASK}",
            masked=masked,
            mask=host.environ.get(MASK) if masked else None,
            order=host.environ.get("CUDA_DEVICE_ORDER", ""),
            library=said.get("library", True),
            code=said.get("code"),
            result=said.get("result", ""),
            cuda_version=cuda_version(said.get("version")),
            count=said.get("count"),
            devices=tuple(devices),
            seconds=round(time.monotonic() - started, 1),
            unanswered=call if answer.status == "timeout" else "",
        )
    if answer.status != "ok":
        yield Absent(
            kind=CudaView.kind(),
            about=subject,
            status=answer.status,
            reason=f"{call}: {answer.reason}" if call else answer.reason,
            how_to_get=HOW_TO_GET,
        )


PROBES = (
    Probe(name="cuda", gives=(CudaView,), take=take_masked, risk="gpu", seconds=GPU_SECONDS),
    Probe(name="cuda-without-mask", gives=(CudaView,), take=take_unmasked, risk="gpu", seconds=GPU_SECONDS),
)
