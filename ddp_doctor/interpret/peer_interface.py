"""The interface other nodes would use: the way to MASTER_ADDR, else the default route, else the first real link."""

from __future__ import annotations

import ipaddress

from ddp_doctor.facts.names import Interface, PeerInterface, Route
from ddp_doctor.model import Fact, Facts


def interpret(facts: Facts) -> list[Fact]:
    """At most one per host; none where no interface but loopback is up with an address that other nodes could use."""
    found: list[Fact] = []
    for host in dict.fromkeys(interface.subject.host for interface in facts[Interface]):
        here = facts.on(host)
        usable = {
            each.name: each
            for each in here[Interface]
            if each.up and each.running and not each.loopback and _address(each)
        }
        ways = [route for route in here[Route] if route.to != "default"]
        defaults = [route for route in here[Route] if route.to == "default"]
        chosen = [(route.interface, f"is the way to {route.to}") for route in ways if not _is_loopback(route.to)]
        chosen += [(route.interface, "carries the default route") for route in defaults]
        order = ("physical", "bond", "virtual", "veth", "tunnel", "bridge")
        linked = sorted(usable.values(), key=lambda each: (order.index(each.device), each.index))
        chosen += [(each.name, "is the first link that is up") for each in linked]
        for name, because in chosen:
            if name in usable:
                interface = usable[name]
                found.append(
                    PeerInterface(
                        subject=interface.subject,
                        source="routes",
                        interface=name,
                        address=_address(interface),
                        because=because,
                    )
                )
                break
    return found


def _address(interface: Interface) -> str:
    return next((each for each in interface.addresses if not ipaddress.ip_address(each).is_link_local), "")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
