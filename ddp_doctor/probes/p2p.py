"""Every pair of GPUs of this node: what NVML and CUDA say of peer-to-peer access. No context is created."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import DriverState
from ddp_doctor.facts.p2p import P2pPair
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

SECONDS = 10.0
"""Eight GPUs are some 500 calls of 10 microseconds each, and a driver that sleeps takes seconds to wake up."""


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """A P2pPair for each ordered pair, or why there is none to see."""
    driver = facts.first(DriverState)
    if driver is None or not driver.works:
        reason = driver.text() if driver else "NVML was not asked"
        yield Absent(kind=P2pPair.kind(), about=Subject(host=host.name), reason=reason)
        return
    if (driver.gpus or 0) < 2:
        return
    answer = host.ask("p2p", seconds=SECONDS)
    pairs: list[dict[str, Any]] = [message for message in answer.messages if "pair" in message]
    if not pairs or answer.status != "ok":
        calls = [str(message["call"]) for message in answer.messages if "call" in message]
        failed = next((str(message["failed"]) for message in answer.messages if "failed" in message), "")
        yield Absent(
            kind=P2pPair.kind(),
            about=Subject(host=host.name),
            status="absent" if answer.status == "ok" else answer.status,
            reason=failed or f"{calls[-1] if calls else 'NVML'}: {answer.reason or 'no pair was named'}",
            how_to_get="nvidia-smi topo -p2p r",
        )
    peers = {(first, second): can for message in answer.messages for first, second, can in message.get("peers", ())}
    cpu = _cpu(host.read("/proc/cpuinfo", limit=4096)["/proc/cpuinfo"] or "")
    for pair in pairs:
        first, second = pair["pair"]
        yield P2pPair(
            subject=Subject(host=host.name),
            source="nvmlDeviceGetP2PStatus, cuDeviceCanAccessPeer",
            first=first,
            second=second,
            read=pair.get("read"),
            write=pair.get("write"),
            link="nvlink" if pair["nvlink"] else pair.get("link"),
            peer=peers.get(tuple(pair["uuids"])),
            cpu=cpu,
        )


def _cpu(text: str) -> str:
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else "arm" if "CPU implementer" in text else ""


PROBES = (Probe(name="p2p", gives=(P2pPair,), builds_on=(DriverState,), take=take, risk="gpu", seconds=SECONDS),)
