"""Where a machine listens in the job to come: the addresses of NCCL and Gloo, the one it is known by, and the store's port."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ddp_doctor.collect import closure, collect
from ddp_doctor.facts.names import (
    GlooInterface,
    Interface,
    NcclInterface,
    NcclSockets,
    PeerInterface,
    Resolution,
    addresses_of,
)
from ddp_doctor.facts.rendezvous import Meeting, Port, PortOwner
from ddp_doctor.host import Host
from ddp_doctor.interpret import interpret, interpreters, raw_kinds
from ddp_doctor.meeting.doors import Place, bare
from ddp_doctor.model import Facts
from ddp_doctor.probes import probes_for_run

KINDS = (GlooInterface, NcclInterface, NcclSockets, PeerInterface, Meeting, Resolution, Port, PortOwner)


def survey(host: Host) -> tuple[Place, ...]:
    """The places where the other machines have to reach this one, each address once."""
    meanings = [each for each in interpreters() if set(each.gives) & set(KINDS)]
    probes = closure(probes_for_run(), raw_kinds(KINDS, meanings))
    return places(interpret(collect(host, probes, Facts()).facts, meanings))


def places(facts: Facts) -> tuple[Place, ...]:
    """What these facts of one machine say about it."""
    uses: dict[str, list[str]] = {}
    for use, address in _wanted(facts):
        if use not in uses.setdefault(bare(address), []):
            uses[bare(address)].append(use)
    own = {address: each.name for each in facts[Interface] for address in each.addresses}
    found = [
        Place(address=address, uses=tuple(named), interface=own[address])
        for address, named in uses.items()
        if address in own and _reachable(address)
    ]
    return (*found, *_store(facts, found))


def _wanted(facts: Facts) -> Iterator[tuple[str, str]]:
    peer = facts.first(PeerInterface)
    mine = {address for each in facts[Interface] for address in each.addresses}
    masters = [address for each in facts[Meeting] for address in addresses_of(each.address, facts[Resolution])]
    known = next((address for address in masters if address in mine and _reachable(address)), None)
    if known or peer:
        yield "host", known or (peer.address if peer else "")
    for gloo in facts[GlooInterface]:
        if gloo.address:
            yield "gloo", gloo.address
    asked, sockets = facts.first(NcclInterface), facts.first(NcclSockets)
    if asked is not None and asked.address:
        yield "nccl", asked.address
    elif asked is None and sockets is not None and sockets.ifname and sockets.interfaces:
        first = next((each for each in facts[Interface] if each.name == sockets.interfaces[0]), None)
        if first is not None and first.addresses:
            yield "nccl", first.addresses[0]


def _store(facts: Facts, found: list[Place]) -> Iterator[Place]:
    """MASTER_PORT itself, on rank 0's machine, where nobody holds it."""
    for meeting in facts[Meeting]:
        port = facts.first(Port)
        free = port is not None and port.named and port.bindable and port.port == meeting.port
        for place in found:
            if meeting.hosts and free and "host" in place.uses and not facts[PortOwner] and port is not None:
                yield Place(address=place.address, uses=("store",), interface=place.interface, port=port.port)
                return


def _reachable(address: str) -> bool:
    """Whether an address means the same host on another one; loopback and link-local ones do not."""
    number = ipaddress.ip_address(address)
    return not (number.is_loopback or number.is_unspecified or (number.version == 6 and number.is_link_local))
