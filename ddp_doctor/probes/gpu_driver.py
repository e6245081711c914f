"""The driver's own view: NVML, asked through nvidia-ml-py in a worker, about every GPU whatever the mask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import CallError, ComputeMode, DriverGpu, DriverState, FabricState, GpuProcess, Virtualization
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

GPU_SECONDS = 30.0
"""A driver that starts without persistence mode takes 10 to 30 s; that is slow, not broken."""

SOURCE = "NVML (libnvidia-ml.so.1)"
HOW_TO_GET = "run `timeout 60 nvidia-smi`; if it hangs too, look for `NVRM: Xid` in dmesg"
COMPUTE_MODES: tuple[ComputeMode, ...] = get_args(ComputeMode)
FABRIC_STATES: tuple[FabricState, ...] = get_args(FabricState)
VIRTUALIZATIONS: tuple[Virtualization, ...] = get_args(Virtualization)


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """One DriverState and a DriverGpu per GPU; what hung or crashed is also an Absent that names the call."""
    subject = Subject(host=host.name)
    binding = find_spec("pynvml")
    if binding is None or binding.origin is None:
        for kind in (DriverState, DriverGpu):
            yield Absent(
                kind=kind.kind(),
                about=subject,
                reason="the module pynvml is missing",
                how_to_get="reinstall ddp-doctor; nvidia-ml-py, which it depends on, brings pynvml",
            )
        return
    started = time.monotonic()
    answer = host.ask("nvml", {"binding": binding.origin, "proc": str(Path(host.root, "proc"))}, seconds=GPU_SECONDS)
    seconds = time.monotonic() - started
    driver: dict[str, Any] = {}
    call: dict[str, Any] = {}
    for message in answer.messages:
        if "missing" in message:
            yield DriverState(subject=subject, source="dlopen", library=False, status=message["missing"])
            return
        driver = message.get("driver", driver)
        call = message if "call" in message else call
        if "gpu" in message:
            yield driver_gpu(subject, message["gpu"])
    state = driver_state(subject, driver, seconds)
    if answer.status == "ok":
        yield state
        return
    reason = answer.reason
    if answer.status == "timeout" and call:
        index = call["index"]
        reason = f"{call['call']}{'' if index is None else f' for GPU {index}'}: {reason}"
        if not answer.hurried:
            yield msgspec.structs.replace(state, unanswered=call["call"])
        if index is not None and not answer.hurried:
            yield DriverGpu(subject=subject, source=SOURCE, index=index, unanswered=call["call"])
    for kind in (DriverState, DriverGpu):
        yield Absent(kind=kind.kind(), about=subject, status=answer.status, reason=reason, how_to_get=HOW_TO_GET)


def driver_state(subject: Subject, said: dict[str, Any], seconds: float) -> DriverState:
    """The state from what the worker said of the driver, which may be nothing yet."""
    durations: dict[str, float] = said.get("durations", {})
    return DriverState(
        subject=subject,
        source=SOURCE,
        code=said.get("code"),
        status=said.get("status", ""),
        driver_version=said.get("driver_version", ""),
        cuda_version=cuda_version(said.get("cuda")),
        gpus=said.get("gpus"),
        seconds=round(seconds, 1),
        slowest=max(durations, key=durations.__getitem__, default=""),
    )


def driver_gpu(subject: Subject, said: dict[str, Any]) -> DriverGpu:
    """One GPU from what the worker said of it."""
    total, free, used = said.get("memory", (None, None, None))
    state, status = said.get("fabric", (None, None))
    return DriverGpu(
        subject=subject,
        source=SOURCE,
        index=said["index"],
        uuid=said.get("uuid") or "",
        name=said.get("name") or "",
        pci=said.get("pci") or "",
        memory_total=total,
        memory_free=free,
        memory_used=used,
        compute_mode=named(COMPUTE_MODES, said.get("compute_mode")),
        mig=said.get("mig"),
        mig_uuids=tuple(said.get("mig_uuids", ())),
        ecc_uncorrected=said.get("ecc"),
        remap_pending=said.get("remap_pending"),
        remap_failure=said.get("remap_failure"),
        persistence=None if said.get("persistence") is None else bool(said["persistence"]),
        fabric_state=named(FABRIC_STATES, state),
        fabric_status=status,
        virtualization=named(VIRTUALIZATIONS, said.get("virtualization")),
        processes=msgspec.convert(said.get("processes", ()), tuple[GpuProcess, ...]),
        errors=tuple(CallError(call=call, code=code, text=text) for call, code, text in said["errors"]),
    )


N = TypeVar("N", bound=str)


def named(names: tuple[N, ...], number: int | None) -> N | None:
    """The name of one of NVML's numbered values, None for a number this version does not know."""
    return names[number] if number is not None and 0 <= number < len(names) else None


def cuda_version(number: int | None) -> str:
    """`12.4` for NVML's and CUDA's 12040, empty for none."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


PROBES = (Probe(name="gpu-driver", gives=(DriverState, DriverGpu), take=take, risk="gpu", seconds=GPU_SECONDS),)
