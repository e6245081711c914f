"""Values for tests about pairs of GPUs: two on PCI ports of their own, and copies between them."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.gpu import DriverGpu
from ddp_doctor.facts.p2p import P2pPair, PairCopy, PairRoute
from ddp_doctor.facts.pcie import Bridge, Machine, PciPath
from ddp_doctor.model import Fact

REDIRECTING = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


def bus(
    acs: tuple[str, ...] | None = (), iommu: str = "", hypervisor: bool = False, link: str = "host-bridge"
) -> list[Fact]:
    """A machine with GPUs 0 and 1, each below a root port with that ACS control, in an IOMMU group of that type."""
    found: list[Fact] = [Machine(source="/proc/cpuinfo", hypervisor=hypervisor)]
    for number in (0, 1):
        address = f"0000:0{number + 1}:00.0"
        found += [
            DriverGpu(index=number, uuid=f"GPU-{number}", pci=f"0000{address}"),
            PciPath(
                address=address,
                bridges=(Bridge(address=f"0000:00:0{number + 1}.0", acs=acs),),
                iommu_group=number if iommu else None,
                iommu=iommu,
            ),
        ]
    pairs: list[Any] = [(0, 1), (1, 0)]
    for first, second in pairs:
        found.append(P2pPair(first=first, second=second, read="ok", write="ok", peer=True, link=link))  # type: ignore[arg-type]
        found.append(
            PairRoute(first=first, second=second, route="p2p", why="", version="2.27.5", link=link)  # type: ignore[arg-type]
        )
    return found


def copy(outcome: str = "passed", mechanism: str = "cumem", **changes: Any) -> PairCopy:
    """GPU 0 on memory of GPU 1."""
    values: dict[str, Any] = {"first": 0, "second": 1, "mechanism": mechanism, "outcome": outcome}
    if outcome == "wrong-data":
        values |= {"step": "read", "error": "16384 of 16384 words, the first 0x00000000 instead of 0x00009e37"}
    return PairCopy(**(values | changes))
