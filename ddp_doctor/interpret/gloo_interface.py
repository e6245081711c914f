"""The address Gloo chooses, by the rule of its device code: GLOO_SOCKET_IFNAME, else the hostname, else loopback."""

from __future__ import annotations

import ipaddress

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import GlooInterface, Interface, Resolution
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts


def interpret(facts: Facts) -> list[Fact]:
    """One choice per host whose interfaces and hostname are known (several with a list in GLOO_SOCKET_IFNAME)."""
    found: list[Fact] = []
    for host in dict.fromkeys(interface.subject.host for interface in facts[Interface]):
        here = facts.on(host)
        interfaces = tuple(each for each in here[Interface] if each.subject.host == host)
        variable = next(
            (each for each in here[Variable] if each.name == "GLOO_SOCKET_IFNAME" and each.in_effect),
            None,
        )
        if variable is not None and variable.value:
            found += [_by_name(variable, name, interfaces) for name in variable.value.split(",")]
            continue
        own = [each for each in here[Resolution] if each.role == "hostname" and each.subject.host == host]
        if own:
            found.append(_by_hostname(own[0], interfaces))
    return found


def _by_name(variable: Variable, name: str, interfaces: tuple[Interface, ...]) -> GlooInterface:
    """The first address of the interface with exactly this name."""
    chosen = next((each for each in interfaces if each.name == name and each.addresses), None)
    return GlooInterface(
        subject=variable.subject,
        source=variable.source,
        chosen_by="variable",
        interface=name if chosen else "",
        address=chosen.addresses[0] if chosen else "",
        error="" if chosen else f"Unable to find address for: {name}",
    )


def _by_hostname(resolution: Resolution, interfaces: tuple[Interface, ...]) -> GlooInterface:
    """The first address of the hostname that can be bound on this node; binding does not ask whether the link is up."""
    for address in resolution.addresses:
        bare = address.partition("%")[0]
        holder = next((each for each in interfaces if bare in each.addresses), None)
        if holder is None and ipaddress.ip_address(bare).is_loopback and ":" not in bare:
            holder = next((each for each in interfaces if each.loopback), None)
        if holder is not None:
            return GlooInterface(
                subject=resolution.subject,
                source=resolution.source,
                chosen_by="hostname",
                interface=holder.name,
                address=address,
            )
    loopback = next((each.name for each in interfaces if each.loopback), "lo")
    return GlooInterface(
        subject=resolution.subject,
        source=resolution.source,
        chosen_by="fallback",
        interface=loopback,
        address="127.0.0.1",
    )


INTERPRETER = Interpreter(reads=(Interface, Variable, Resolution), gives=(GlooInterface,), interpret=interpret)
