"""The RDMA adapters (HCAs) of a host and their ports, as sysfs shows them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from ddp_doctor.model import Fact


class Gid(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a port's GID table that is not empty. `type` is the kernel's word: `IB/RoCE v1` or `RoCE v2`."""

    index: int
    address: str
    type: str = ""
    netdev: str = ""

    @property
    def sort(self) -> str:
        """Type and family, by which two ends have to agree."""
        number = ipaddress.ip_address(self.address)
        mapped = getattr(number, "ipv4_mapped", None)
        return f"{self.type or 'of unknown type'}, {'IPv4' if mapped else 'link-local' if number.is_link_local else 'IPv6'}"


class HcaPort(Fact, frozen=True, kw_only=True):
    """One port of an RDMA adapter. `state` and `physical` are the kernel's words, such as `ACTIVE` and `LinkUp`."""

    hca: str
    port: int
    state: str
    physical: str = ""
    link_layer: str = ""
    """`InfiniBand` or `Ethernet` (RoCE)."""
    rate: str = ""
    gids: tuple[Gid, ...] = ()
    netdevs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As NCCL_IB_HCA names it."""
        return f"{self.hca}:{self.port}"

    @property
    def active(self) -> bool:
        """Whether NCCL would use it; it passes over all others."""
        return self.state == "ACTIVE"

    @property
    def gbps(self) -> float:
        """The rate in Gb/s; 0 where that is no number."""
        head = self.rate.split(" ")[0]
        return float(head) if head.replace(".", "", 1).isdigit() else 0.0

    def gid(self, index: int) -> Gid | None:
        """The entry with that number; None where it is empty."""
        return next((each for each in self.gids if each.index == index), None)

    def text(self) -> str:
        link = f"{self.state} ({self.physical or 'no link state'})"
        return f"{self.name} {link}, {self.link_layer or 'no link layer'}, {self.rate}"


def chosen(ports: Iterable[HcaPort], wish: str) -> tuple[HcaPort, ...]:
    """Those that this value of NCCL_IB_HCA leaves: prefixes, after `=` whole names, after `^` all others; empty takes all."""
    excluded, text = wish.startswith("^"), wish.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    wanted = [each.strip().partition(":") for each in text.split(",") if each.strip()]
    if not wanted:
        return tuple(ports)

    def matches(port: HcaPort) -> bool:
        return any(
            (port.hca == name if exact else port.hca.startswith(name)) and number in ("", str(port.port))
            for name, _, number in wanted
        )

    return tuple(each for each in ports if matches(each) != excluded)
