"""The interface other nodes would use: the way to MASTER_ADDR, else the default route, else the first real link.

And the interfaces that they cannot use.
"""

from __future__ import annotations

import ipaddress

from ddp_doctor.facts.names import Interface, PeerInterface, Route, UnreachableInterface
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts

ORDER = ("physical", "bond", "virtual", "veth", "tunnel", "bridge")


def interpret(facts: Facts) -> list[Fact]:
    """At most one PeerInterface per host (none where only loopback is up), and an UnreachableInterface for each bad one."""
    found: list[Fact] = []
    for host in dict.fromkeys(interface.subject.host for interface in facts[Interface]):
        here = facts.on(host)
        peer = _peer(here)
        found += [peer] if peer else []
        for interface in here[Interface]:
            why = _why_unreachable(interface, peer)
            if why:
                found.append(
                    UnreachableInterface(
                        subject=interface.subject, source=interface.source, interface=interface.name, why=why
                    )
                )
    return found


def _peer(here: Facts) -> PeerInterface | None:
    usable = {
        each.name: each for each in here[Interface] if each.up and each.running and not each.loopback and _address(each)
    }
    ways = [route for route in here[Route] if route.to != "default" and not _is_loopback(route.to)]
    chosen = [(route.interface, f"is the way to {route.to}") for route in ways]
    chosen += [(route.interface, "carries the default route") for route in here[Route] if route.to == "default"]
    linked = sorted(usable.values(), key=lambda each: (_for_containers(each), ORDER.index(each.device), each.index))
    chosen += [(each.name, "is the first link that is up") for each in linked]
    for name, because in chosen:
        if name in usable:
            interface = usable[name]
            return PeerInterface(
                subject=interface.subject, source="routes", interface=name, address=_address(interface), because=because
            )
    return None


def _why_unreachable(interface: Interface, peer: PeerInterface | None) -> str:
    """A bridge or tunnel is right, whatever its name, where it is the way to the others or carries the default route."""
    if interface.loopback:
        return "which is loopback"
    if not interface.up:
        return "which is down"
    if not interface.running:
        return "which has no carrier"
    if peer is None or peer.interface == interface.name:
        return ""
    v4 = [each for each in interface.addresses if ":" not in each]
    if v4 and all(ipaddress.ip_address(each).is_link_local for each in v4):
        return "which has only a link-local address"
    if _for_containers(interface):
        return "which is a bridge for containers or virtual machines on this node"
    if interface.device == "tunnel":
        return f"which is a tunnel, while {peer.interface} {peer.because}"
    return ""


def _for_containers(interface: Interface) -> bool:
    return interface.device == "bridge" or interface.name.startswith(("docker", "podman", "cni", "virbr", "lxcbr"))


def _address(interface: Interface) -> str:
    return next((each for each in interface.addresses if not ipaddress.ip_address(each).is_link_local), "")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


INTERPRETER = Interpreter(reads=(Interface, Route), gives=(PeerInterface, UnreachableInterface), interpret=interpret)
