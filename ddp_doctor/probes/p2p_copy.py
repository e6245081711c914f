"""Data between the GPUs of this node, carried the way NCCL carries it and compared: which mechanism fails, if any.

It creates a context on each GPU, so it obeys the rule of the trial communicator. A trial that passed has carried checked
data over P2P already, and one that ended earlier has another cause: then it runs with `--active always` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState, GpuNode
from ddp_doctor.facts.p2p import P2pPair, PairCopy
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes.communicator import HEADROOM_MIB, RESERVE_SECONDS, why_not

SECONDS = 30.0
START_SECONDS = 25.0
"""A driver without persistence mode takes 20 s to wake up."""
ANSWER_SECONDS = 6.0
"""One direction of one pair takes milliseconds."""


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """A PairCopy for each direction of each pair that driver and CUDA call able, and for each mechanism."""
    pairs = able_pairs(facts)
    if not pairs or not wanted(host, facts):
        return
    view = next(view for view in facts[CudaView] if view.masked)
    refusal = why_not(facts, view, view.count or 0) if host.options.active != "always" else ""
    if host.options.active == "never":
        refusal = "--active never"
    if refusal:
        yield _absent(host, "denied", refusal, "ddp-doctor run --active always")
        return
    numbers = {device: index for pair in pairs for device, index in pair.items()}
    request = {
        "devices": sorted(numbers),
        "pairs": [sorted(pair) for pair in pairs],
        "needed_mib": HEADROOM_MIB,
        "start_seconds": START_SECONDS,
        "answer_seconds": ANSWER_SECONDS,
    }
    answer = host.ask("p2p_copy", request, seconds=min(SECONDS, host.deadline.remaining() - RESERVE_SECONDS))
    at = ""
    for message in answer.messages:
        at = str(message.get("at", at))
        if "copy" in message:
            said: dict[str, Any] = message["copy"]
            said.update(first=numbers[said["first"]], second=numbers[said["second"]])
            yield PairCopy(
                subject=Subject(host=host.name),
                source="a process per GPU, a kernel that loads from and stores to the other's memory",
                **{name: said[name] for name in PairCopy.__struct_fields__ if name in said},
            )
        elif "start" in message:
            start = message["start"]
            said_of = f"GPU {numbers[start['device']]}: {start['call']}"
            silent = start["outcome"] == "no-answer"
            reason = f"{said_of}: {'no answer' if silent else start['error']}"
            yield _absent(host, "timeout" if silent else "crashed", reason)
    if answer.status != "ok":
        yield _absent(host, answer.status, f"{at}: {answer.reason}" if at else answer.reason)


def able_pairs(facts: Facts) -> list[dict[int, int]]:
    """The pairs of visible GPUs to which driver and CUDA promise P2P, each as CUDA's ordinals to NVML's indexes."""
    view = next((view for view in facts[CudaView] if view.masked and view.works), None)
    indexes = {gpu.uuid: gpu.index for gpu in facts[DriverGpu] if gpu.uuid}
    ordinals = {indexes[device.gpu_uuid]: device.ordinal for device in (view.devices if view else ())
                if device.gpu_uuid in indexes}  # fmt: skip
    return [
        {ordinals[pair.first]: pair.first, ordinals[pair.second]: pair.second}
        for pair in facts[P2pPair]
        if pair.first < pair.second and pair.ok and pair.peer and {pair.first, pair.second} <= set(ordinals)
    ]


def wanted(host: Host, facts: Facts) -> bool:
    """Whether the trial communicator left it open if P2P carries data: it was not possible, or stopped once it used P2P."""
    if host.options.active == "always":
        return True
    ranks = [rank for rank in facts[CommunicatorRank] if not rank.without_p2p]
    if not ranks:
        return not any(absent.status == "timeout" for absent in facts.lacking(CommunicatorRank))
    used = any(" via P2P" in line for rank in ranks for line in rank.lines)
    return used and any(rank.outcome != "passed" for rank in ranks)


PROBES = (
    Probe(
        name="p2p-copy",
        gives=(PairCopy,),
        builds_on=(DriverState, DriverGpu, CudaView, GpuNode, P2pPair, CommunicatorRank),
        take=take,
        risk="gpu",
        seconds=SECONDS,
    ),
)


def _absent(host: Host, status: Any, reason: str, how_to_get: str = "") -> Absent:
    return Absent(
        kind=PairCopy.kind(), about=Subject(host=host.name), status=status, reason=reason, how_to_get=how_to_get
    )
