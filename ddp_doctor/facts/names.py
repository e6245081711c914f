"""Names, addresses, interfaces and routes of this node, and the interface NCCL and Gloo choose among them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Literal

from ddp_doctor.model import Fact


class Resolution(Fact, frozen=True, kw_only=True):
    """What the resolver answered for one name. `role` is why it was asked; `error` is the resolver's own text.

    `answered` is False where the resolver was still silent at the deadline; `error` then says how long it was given.
    """

    name: str
    role: Literal["hostname", "master", "rendezvous"]
    addresses: tuple[str, ...] = ()
    error: str = ""
    code: int | None = None
    answered: bool = True

    @property
    def silent(self) -> str:
        return "" if self.answered else f"the resolver about {self.name}: {self.error}"

    def text(self) -> str:
        return f"{self.name} -> {', '.join(self.addresses) or self.error}"


class ReverseLookup(Fact, frozen=True, kw_only=True):
    """What the resolver answered for the name of an address. That there is no name is as good an answer as a name.

    torch asks this for both ends of each connection to a store, before it uses the connection (seen in 2.13). `seconds`
    is how long the answer took, or was waited for where `answered` is False.
    """

    address: str
    name: str = ""
    error: str = ""
    seconds: float = 0.0
    answered: bool = True

    @property
    def silent(self) -> str:
        return "" if self.answered else self.text()

    def text(self) -> str:
        said = self.name or self.error if self.answered else "no answer from the resolver"
        return f"the name of {self.address}: {said} ({self.seconds:.1f} s)"


class Interface(Fact, frozen=True, kw_only=True):
    """One network interface, in the kernel's order (ifindex). `device` is what sysfs says it is made of."""

    name: str
    index: int
    addresses: tuple[str, ...] = ()
    """IPv4 addresses, then IPv6 ones without their scope."""
    up: bool = False
    running: bool = False
    loopback: bool = False
    device: Literal["physical", "bridge", "veth", "tunnel", "bond", "virtual", "loopback"] = "virtual"

    def text(self) -> str:
        state = "running" if self.up and self.running else "up, no carrier" if self.up else "down"
        return f"{self.name} {', '.join(self.addresses) or 'no address'} ({self.device}, {state})"


def is_local(address: str, interfaces: Iterable[Interface]) -> bool:
    """Whether a connection to this IP address stays on this node."""
    bare = address.partition("%")[0]
    number = ipaddress.ip_address(bare)
    if number.is_loopback or number.is_unspecified:
        return True
    return any(bare in interface.addresses for interface in interfaces)


def lacking_family(addresses: Iterable[str], interfaces: Iterable[Interface]) -> Literal["", "IPv4", "IPv6"]:
    """The one family of these addresses, where no interface of this node has an address of it; else empty.

    A loopback interface that is down has no address at all, which says nothing about a family.
    """
    # ::ffff:10.0.0.1 is IPv4 in IPv6's notation, and works without any IPv6
    addresses = tuple(addresses)
    families = {":" in address and not address.lower().startswith("::ffff:") for address in addresses}
    known = tuple(interfaces)
    if len(families) != 1 or any(each.loopback and not each.up for each in known):
        return ""
    outside = not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)
    # what loopback has leads nowhere else
    here = {":" in address for each in known for address in each.addresses if not (outside and each.loopback)}
    return "" if not here or families <= here else "IPv6" if True in families else "IPv4"


def addresses_of(name: str | None, resolutions: Iterable[Resolution]) -> tuple[str, ...]:
    """What this name stands for, each address once."""
    return tuple(dict.fromkeys(address for each in resolutions if each.name == name for address in each.addresses))


class Route(Fact, frozen=True, kw_only=True):
    """The interface by which this node reaches `to`: `default`, or an address of MASTER_ADDR. `error` if it cannot."""

    to: str
    interface: str = ""
    local_address: str = ""
    error: str = ""

    def text(self) -> str:
        return f"{self.to} through {self.interface} {self.local_address}".rstrip() if self.interface else self.error


class NcclInterface(Fact, frozen=True, kw_only=True):
    """The interface libnccl chooses for its bootstrap on this node, asked of the library itself by ncclGetUniqueId.

    `error` holds NCCL's own warning where it finds none. `interface` is empty where neither NCCL nor the address names it.
    """

    version: str
    interface: str = ""
    address: str = ""
    family: Literal["", "inet", "inet6"] = ""
    error: str = ""
    ifname: str | None = None
    """NCCL_SOCKET_IFNAME as the library saw it, from the environment or a conf file; None where unset."""
    socket_family: str | None = None
    """NCCL_SOCKET_FAMILY likewise."""

    def text(self) -> str:
        return f"NCCL {self.version}: {self.error or f'{self.interface} {self.address}'}"


class GlooInterface(Fact, frozen=True, kw_only=True):
    """The address Gloo listens on and tells the other ranks, by its rule.

    `chosen_by` is `variable` (GLOO_SOCKET_IFNAME), `hostname` (it resolves to an address of this node) or `fallback`.
    """

    chosen_by: Literal["variable", "hostname", "fallback"]
    interface: str = ""
    address: str = ""
    error: str = ""

    def text(self) -> str:
        return self.error or f"{self.interface} {self.address} (by {self.chosen_by})"


class NcclSockets(Fact, frozen=True, kw_only=True):
    """Every interface that NCCL's socket transport would use on this node, by NCCL's rule; the bootstrap uses the first.

    `version` is empty where no libnccl was asked; the rule is then that of releases up to 2.27, which look at no flag.
    """

    interfaces: tuple[str, ...] = ()
    version: str = ""
    ifname: str | None = None

    def text(self) -> str:
        return f"{', '.join(self.interfaces) or 'none'} (NCCL_SOCKET_IFNAME {self.ifname or 'not set'})"


class PeerInterface(Fact, frozen=True, kw_only=True):
    """The interface by which other nodes most likely reach this one, and why it is thought so."""

    interface: str
    address: str
    because: str

    def text(self) -> str:
        return f"{self.interface} {self.address} {self.because}"


class UnreachableInterface(Fact, frozen=True, kw_only=True):
    """An interface by which other nodes most likely cannot reach this one; `why` follows its name in a sentence."""

    interface: str
    why: str

    def text(self) -> str:
        return f"{self.interface}, {self.why}"
