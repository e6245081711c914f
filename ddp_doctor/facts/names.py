"""Names, addresses and interfaces of this node."""

from __future__ import annotations

from typing import Literal

from ddp_doctor.model import Fact


class Resolution(Fact, frozen=True, kw_only=True):
    """What the resolver answered for one name. `role` is why it was asked; `error` is the resolver's own text."""

    name: str
    role: Literal["hostname", "master"]
    addresses: tuple[str, ...] = ()
    error: str = ""
    code: int | None = None

    def text(self) -> str:
        return f"{self.name} -> {', '.join(self.addresses) or self.error}"


class Interface(Fact, frozen=True, kw_only=True):
    """One network interface, in the kernel's order (ifindex). `device` is what sysfs says it is made of."""

    name: str
    index: int
    addresses: tuple[str, ...] = ()
    up: bool = False
    running: bool = False
    loopback: bool = False
    device: Literal["physical", "bridge", "veth", "tunnel", "bond", "virtual", "loopback"] = "virtual"

    def text(self) -> str:
        state = "running" if self.running else "up, no carrier" if self.up else "down"
        return f"{self.name} {', '.join(self.addresses) or 'no address'} ({self.device}, {state})"
