"""A pair of GPUs, the NCCL version and its variables to the transport NCCL will choose for the pair."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ddp_doctor.facts.gpu import DriverGpu
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.p2p import Link, P2pPair, PairRoute, Route
from ddp_doctor.facts.pcie import Machine, PciPath, between, pci_address
from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts

Version = tuple[int, ...]

DISTANCE: dict[Link, int] = {
    "nvlink": 1, "board": 4, "switch": 4, "switches": 5, "host-bridge": 8, "numa-node": 8, "system": 9,
}  # fmt: skip
"""NCCL's path types, as far as GPUs of one node have them, by their number in LEVELS."""
LEVELS = {
    "LOC": 0, "NVL": 1, "NVB": 2, "C2C": 3, "PIX": 4, "PXB": 5, "P2C": 6, "PXN": 7, "PHB": 8, "SYS": 9,
    "0": 0, "1": 4, "2": 5, "3": 8, "4": 9, "5": 9,
}  # fmt: skip
SYS, PXB = LEVELS["SYS"], LEVELS["PXB"]
FIRST_WITH_PXB = (2, 23)
"""Before it, P2P across the whole machine was the default but on ARM, Intel and Zhaoxin."""
FIRST_WHERE_DENIED_IS_DENIED = (2, 19, 1)
"""Before it, a PCIe pair that the driver denies was tried all the same unless NCCL_IGNORE_DISABLED_P2P=1."""
SEGMENT = 9_637_888
"""Bytes in /dev/shm of one connection, measured with 2.27.5 and 2.30.7."""


def interpret(facts: Facts) -> list[Fact]:
    """A PairRoute for each pair, where the version of NCCL is known."""
    version = _version(facts)
    if not version:
        return []
    found: list[Fact] = []
    for host in {pair.subject.host for pair in facts[P2pPair]}:
        pairs = [pair for pair in facts[P2pPair] if pair.subject.host == host]
        variables = {
            item.name: item.value
            for item in facts[Variable]
            if item.in_effect and item.subject.host in ("", host) and item.name.startswith("NCCL_")
        }
        gpus = len({pair.first for pair in pairs})
        for pair in pairs:
            route = route_of(pair, version, variables, gpus=gpus)
            obstacles = _obstacles(pair, facts.on(host))
            found.append(msgspec.structs.replace(route, why=f"{route.why}; {obstacles}") if obstacles else route)
    return found


def _obstacles(pair: P2pPair, here: Facts) -> str:
    """What is known to stand in the way of P2P over PCI between the two, empty for nothing."""
    if pair.link == "nvlink":
        return ""
    machine = here.first(Machine)
    if machine and machine.hypervisor:
        return f"a virtual machine ({machine.product})" if machine.product else "a virtual machine"
    paths = {path.address: path for path in here[PciPath]}
    places = {gpu.index: paths.get(pci_address(gpu.pci)) for gpu in here[DriverGpu]}
    first, second = places.get(pair.first), places.get(pair.second)
    return between(first, second).text() if first and second else ""


def route_of(pair: P2pPair, version: Version, variables: Mapping[str, str], gpus: int) -> PairRoute:
    """What NCCL of that version does with the pair under these variables, among that many GPUs."""
    route, why = _decide(pair, version, variables, gpus)
    if route == "shm" and variables.get("NCCL_SHM_DISABLE") == "1":
        route, why = "net", f"{why}, and NCCL_SHM_DISABLE=1"
    return PairRoute(
        subject=pair.subject,
        source=pair.source,
        first=pair.first,
        second=pair.second,
        route=route,
        why=why,
        version=".".join(map(str, version)),
        link=pair.link,
        denied=pair.ok is False,
        segment=SEGMENT if route == "shm" else 0,
    )


def _decide(pair: P2pPair, version: Version, variables: Mapping[str, str], gpus: int) -> tuple[Route, str]:
    if variables.get("NCCL_P2P_DISABLE", "0") not in ("0", ""):
        return "shm", "NCCL_P2P_DISABLE is set"
    limit, said = _limit(pair, version, variables, gpus)
    distance = DISTANCE[pair.link] if pair.link else None
    if distance is not None and distance > limit:
        return "shm", f"they are further apart ({pair.link}) than {said} allows"
    ignored = variables.get("NCCL_IGNORE_DISABLED_P2P", "0")
    if pair.ok is False and ignored != "2":
        status = pair.read if pair.read != "ok" else pair.write
        denied = f"the driver says: {status}"
        if pair.link == "nvlink":
            return ("shm", denied) if ignored == "1" else ("fails", f"{denied}, which NCCL takes for a fault of NVLink")
        if version >= FIRST_WHERE_DENIED_IS_DENIED or ignored == "1":
            return "shm", denied
    if pair.peer is False:
        return "shm", "CUDA cannot give access to the peer"
    return "p2p", "driver and CUDA allow it" if pair.ok else "nothing speaks against it"


def _limit(pair: P2pPair, version: Version, variables: Mapping[str, str], gpus: int) -> tuple[int, str]:
    level = LEVELS.get(variables.get("NCCL_P2P_LEVEL", "").upper())
    if level is not None:
        return level, f"NCCL_P2P_LEVEL={variables['NCCL_P2P_LEVEL']}"
    if version < FIRST_WITH_PXB:
        narrow = pair.cpu in ("arm", "GenuineIntel", "CentaurHauls", "Shanghai")
        return (PXB if narrow else SYS), "NCCL's default"
    return (SYS if pair.cpu == "AuthenticAMD" and gpus <= 2 else PXB), "NCCL's default"


def _version(facts: Facts) -> Version:
    runtime, install = facts.first(TorchRuntime), facts.first(TorchInstall)
    texts = [runtime.nccl if runtime else "", *(install.nccl_wheels if install else ())]
    for text in texts:
        found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text.rpartition(" ")[2])
        if found:
            return tuple(int(part or 0) for part in found.groups())
    return ()


INTERPRETER = Interpreter(
    reads=(P2pPair, Variable, TorchInstall, TorchRuntime, PciPath, Machine, DriverGpu),
    gives=(PairRoute,),
    interpret=interpret,
)
