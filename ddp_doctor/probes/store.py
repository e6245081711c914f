"""The port where the ranks meet: can rank 0 open it, who holds it, and what answers there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.names import Interface, Resolution, is_local
from ddp_doctor.facts.rendezvous import Backlog, Meeting, Port, PortOwner, SelfReach, SideCar, StoreAnswer
from ddp_doctor.host import Answer, Host
from ddp_doctor.interpret.meeting import meeting
from ddp_doctor.model import Absent, Fact, Facts, Subject
from ddp_doctor.probes.interfaces import master_addresses

DEFAULT_PORT = 29500
CONNECT_SECONDS = 3.0
LISTEN = "0A"
ARP_COMPLETE = 0x2
MESHES = (("Istio", 1337, (15001, 15006)), ("Linkerd", 2102, (4140, 4143)))


def take_port(host: Host, facts: Facts) -> Iterator[Observation]:
    """Whether the port can be bound now, and every socket that holds it."""
    del facts
    subject = Subject(host=host.name)
    where = meeting(host.environ)
    if where.port_text and where.port is None:
        yield Absent(
            kind=Port.kind(),
            about=subject,
            reason=f"{where.port_variable}={where.port_text!r} is no port number",
            how_to_get="export MASTER_PORT=29500",
        )
        return
    port = where.port or DEFAULT_PORT
    answer = host.ask("port", {"port": port})
    tried = answer.first
    if "bindable" not in tried:
        yield _unanswered(host, Port, answer)
        return
    yield _fact(
        Port,
        host,
        f"bind [::]:{port}",
        tried,
        port=port,
        named=where.port is not None,
        ephemeral=_is_ephemeral(host, port),
    )
    for message in answer.messages[1:]:
        yield _fact(PortOwner, host, "/proc/net/tcp, /proc/*/fd", message, port=port)
    if answer.status != "ok":
        yield _unanswered(host, PortOwner, answer)


def take_store(host: Host, facts: Facts) -> Iterator[Observation]:
    """Ask what is on the store's port, where asking cannot disturb anything but the job's own store.

    A process that hosts the store on an address that is not this node's listens there for a moment and calls itself.
    """
    where = meeting(host.environ)
    port = facts.first(Port)
    if where.address is None or where.port is None:
        if port is not None and not port.bindable and _may_be_asked(port, facts[PortOwner]):
            yield from ask(host, "127.0.0.1", "127.0.0.1", port.port, local=True)
        return
    for address in master_addresses(facts):
        local = is_local(address, facts[Interface])
        if local and not any(owner.listening for owner in facts[PortOwner]):
            if where.hosts is False:
                yield from ask(host, where.address, address, where.port, local=True)
        elif local or where.hosts is not True:
            yield from ask(host, where.address, address, where.port, local=local)
        elif port is not None and port.bindable:
            yield from _reach_self(host, address, where)
        else:
            yield from ask(host, where.address, address, where.port, local=False)


def take_backlog(host: Host, facts: Facts) -> Iterator[Observation]:
    """The limit on queued connections, and a service mesh's proxy among the listeners of this network namespace."""
    del facts
    subject = Subject(host=host.name)
    text = host.kernel("/proc/sys/net/core/somaxconn")
    if text and text.strip().isdigit():
        yield Backlog(subject=subject, source="/proc/sys/net/core/somaxconn", connections=int(text))
    listening: Counter[tuple[int, int]] = Counter()
    for table in ("tcp", "tcp6"):
        for line in (host.kernel(f"/proc/net/{table}") or "").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                listening[int(fields[7]), int(fields[1].rpartition(":")[2], 16)] += 1
    for mesh, user, ports in MESHES:
        if all((user, each) in listening for each in ports):
            yield SideCar(subject=subject, source="/proc/net/tcp", mesh=mesh, ports=ports, user=user)


def _may_be_asked(port: Port, owners: tuple[PortOwner, ...]) -> bool:
    """A connection kills a job of NCCL <= 2.26 if this is its bootstrap port, so a port that nobody named is asked only if
    its owner is seen to have no NCCL."""
    listeners = [owner for owner in owners if owner.listening]
    return bool(listeners) and all(port.named or owner.nccl_loaded is False for owner in listeners)


def ask(host: Host, name: str, address: str, port: int, *, local: bool) -> Iterator[Observation]:
    """What answers at this address, as one StoreAnswer."""
    answer = host.ask("ask_store", {"address": address, "port": port, "seconds": CONNECT_SECONDS})
    if "verdict" in answer.first:
        where: dict[str, Any] = {"name": name, "address": address, "port": port, "local": local}
        if answer.first["verdict"] in ("dropped", "unreachable"):
            where["neighbour"] = _neighbour(host, address)
        yield _fact(StoreAnswer, host, f"{address}:{port}", answer.first, **where)
    else:
        yield _unanswered(host, StoreAnswer, answer)


def _neighbour(host: Host, address: str) -> str:
    for line in (host.kernel("/proc/net/arp") or "").splitlines()[1:]:
        fields = line.split()
        if fields[0] == address and int(fields[2], 16) & ARP_COMPLETE:
            return fields[3]
    return ""


def _reach_self(host: Host, address: str, where: Meeting) -> Iterator[Observation]:
    question = {"address": address, "port": where.port, "seconds": CONNECT_SECONDS, "listen": True}
    answer = host.ask("ask_store", question)
    if "outcome" in answer.first:
        yield _fact(SelfReach, host, f"{address}:{where.port}", answer.first, address=address, port=where.port)
    else:
        yield _unanswered(host, SelfReach, answer)


K = TypeVar("K", bound=Fact)


def _fact(kind: type[K], host: Host, source: str, said: dict[str, Any], **more: Any) -> K:
    """A worker's message as a fact; raises ValidationError where it does not have the kind's shape."""
    return msgspec.convert({**said, **more, "subject": {"host": host.name}, "source": source}, kind)


def _unanswered(host: Host, kind: type[Fact], answer: Answer) -> Absent:
    return Absent(
        kind=kind.kind(),
        about=Subject(host=host.name),
        status="crashed" if answer.status == "ok" else answer.status,
        reason=answer.first.get("error") or answer.reason or "the worker ended without an answer",
    )


def _is_ephemeral(host: Host, port: int) -> bool:
    words = (host.kernel("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return len(words) == 2 and int(words[0]) <= port <= int(words[1])


PROBES = (
    Probe(name="port", gives=(Port, PortOwner), take=take_port),
    Probe(
        name="store",
        gives=(StoreAnswer, SelfReach),
        builds_on=(Resolution, Interface, Port, PortOwner),
        take=take_store,
        risk="network",
    ),
    Probe(name="listeners", gives=(Backlog, SideCar), take=take_backlog),
)
