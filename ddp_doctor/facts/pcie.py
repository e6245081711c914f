"""How GPUs hang on the PCI bus, what on the way may redirect or translate their traffic, and what machine this is."""

from __future__ import annotations

import msgspec

from ddp_doctor.model import Fact

PASSED_THROUGH = "identity"
"""The type of an IOMMU group whose addresses are not translated (`iommu=pt`)."""


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI bridge above a GPU. `acs` are the ACS controls that are on, in lspci's words, such as `ReqRedir`.

    None means that they could not be read: without root the kernel shows 64 bytes of a device's configuration.
    """

    address: str
    acs: tuple[str, ...] | None = ()

    @property
    def redirects(self) -> bool:
        """Whether it sends traffic from one device to another up to the root complex."""
        return bool(self.acs) and not {"ReqRedir", "CmpltRedir"}.isdisjoint(self.acs or ())


class PciPath(Fact, frozen=True, kw_only=True):
    """The way from the root of the PCI bus down to one GPU. `bridges` starts at the root port.

    `iommu` is the type of its IOMMU group (`DMA`, `DMA-FQ`, `identity`), empty where no IOMMU holds it or the kernel does
    not tell the type.
    """

    address: str
    bridges: tuple[Bridge, ...] = ()
    iommu_group: int | None = None
    iommu: str = ""

    @property
    def translated(self) -> bool:
        """Whether an IOMMU translates what it sends."""
        return self.iommu not in ("", PASSED_THROUGH)

    def text(self) -> str:
        bridges = [
            f"{bridge.address} ACSCtl {'unreadable' if bridge.acs is None else ' '.join(bridge.acs) or 'off'}"
            for bridge in self.bridges
        ]
        group = (
            "no IOMMU group" if self.iommu_group is None else f"IOMMU group {self.iommu_group} ({self.iommu or '?'})"
        )
        return ", ".join((self.address, group, *bridges))


class Machine(Fact, frozen=True, kw_only=True):
    """The machine below this kernel. `product` is what its firmware calls it; `iommu_options` stand on the kernel's command
    line; `iommu_groups` counts /sys/kernel/iommu_groups, 0 where no IOMMU is on."""

    hypervisor: bool = False
    """Whether the CPU says that a hypervisor is below."""
    product: str = ""
    iommu_groups: int = 0
    iommu_options: tuple[str, ...] = ()

    def text(self) -> str:
        kind = "a virtual machine" if self.hypervisor else "a machine of its own"
        iommu = f"{self.iommu_groups} IOMMU groups" if self.iommu_groups else "no IOMMU"
        return ", ".join(part for part in (kind, self.product, iommu, " ".join(self.iommu_options)) if part)


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """What lies between two GPUs on the PCI bus. `shared` is the last bridge above both, empty where only the root complex
    joins them; `redirecting` the bridges whose ACS sends their traffic up; `unread` those that could not be read. A GPU
    without any bridge, as a hypervisor shows it, makes the way not `known`."""

    known: bool
    shared: str
    redirecting: tuple[str, ...]
    unread: tuple[str, ...]
    translated: bool

    @property
    def clean(self) -> bool:
        """Whether it is known that nothing redirects or translates."""
        return self.known and not (self.redirecting or self.unread or self.translated)

    def text(self) -> str:
        """What stands between them, empty for nothing."""
        parts = []
        if self.redirecting:
            parts.append(f"ACS of {', '.join(self.redirecting)} redirects their traffic to the root complex")
        if self.translated:
            parts.append("an IOMMU translates their addresses")
        if self.unread and not parts:
            parts.append(f"ACS of {', '.join(self.unread)} cannot be read without root")
        return ", ".join(parts)


def between(first: PciPath, second: PciPath) -> Between:
    """What lies between the two: only bridges below the last shared one can part them."""
    depth = 0
    for one, other in zip(first.bridges, second.bridges, strict=False):
        if one.address != other.address:
            break
        depth += 1
    apart = {bridge.address: bridge for path in (first, second) for bridge in path.bridges[depth:]}
    apart = dict(sorted(apart.items()))
    return Between(
        known=bool(first.bridges and second.bridges),
        shared=first.bridges[depth - 1].address if depth else "",
        redirecting=tuple(address for address, bridge in apart.items() if bridge.redirects),
        unread=tuple(address for address, bridge in apart.items() if bridge.acs is None),
        translated=first.translated or second.translated,
    )


def pci_address(text: str) -> str:
    """NVML's `00000000:19:00.0` as the kernel writes it, `0000:19:00.0`."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else text.lower()
