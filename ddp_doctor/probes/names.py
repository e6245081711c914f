"""What the resolver says about this node's name and the address where the ranks meet."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.names import Resolution, ReverseLookup
from ddp_doctor.host import Host
from ddp_doctor.interpret.meeting import meeting, rendezvous_endpoint
from ddp_doctor.model import Absent, Facts, Subject

OWN_END = "::ffff:127.0.0.1"
"""How the kernel shows torch its own end of a connection over loopback; hosts files seldom name it."""


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """One Resolution per name; names that are empty or hold blanks are not asked for, nobody could answer."""
    del facts
    asked: dict[str, Resolution] = {}
    names = {"hostname": host.name, "master": meeting(host.environ).address or ""}
    endpoint = rendezvous_endpoint(host.environ)
    names["rendezvous"] = endpoint[0] if endpoint else ""
    for role, name in names.items():
        if name and not any(letter.isspace() for letter in name) and name not in asked:
            asked[name] = Resolution(
                subject=Subject(host=host.name),
                source="getaddrinfo",
                name=name,
                role=role,  # type: ignore[arg-type]
            )
    for name in list(asked):
        if is_address(name):
            yield _known(asked.pop(name), [name])
    started = time.monotonic()
    answer = host.ask("resolve", {"names": list(asked), "addresses": [OWN_END]})
    waited = time.monotonic() - started
    reverse: ReverseLookup | None = None
    for message in answer.messages:
        if message.get("address") == OWN_END:
            reverse = _reversed(host, message.get("name", ""), message.get("error", ""))
        question = asked.pop(message.get("name", ""), None) if "address" not in message else None
        if question is not None:
            yield _known(question, message.get("addresses", []), message.get("error", ""), message.get("code"))
    if reverse is not None:
        yield reverse
    elif answer.status == "timeout" and not answer.hurried:
        yield _reversed(host, seconds=waited, answered=False)
    else:
        yield Absent(
            kind=ReverseLookup.kind(),
            about=Subject(host=host.name),
            status="crashed" if answer.status == "ok" else answer.status,
            reason=answer.reason or "the resolver's process ended without an answer",
        )
    for question in asked.values():
        if answer.status == "timeout" and not answer.hurried:
            yield _known(question, [], f"the resolver gave {answer.reason}", answered=False)
        else:
            yield Absent(
                kind=Resolution.kind(),
                about=question.subject,
                status="crashed" if answer.status == "ok" else answer.status,
                reason=answer.reason or "the resolver's process ended without an answer",
                how_to_get=f"getent ahosts {question.name}",
            )


def _reversed(
    host: Host, name: str = "", error: str = "", *, seconds: float = 0.0, answered: bool = True
) -> ReverseLookup:
    return ReverseLookup(
        subject=Subject(host=host.name),
        source="getnameinfo",
        address=OWN_END,
        name=name,
        error=error,
        seconds=seconds,
        answered=answered,
    )


def is_address(name: str) -> bool:
    """Whether it is an IP address and needs no resolver."""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _known(
    question: Resolution, addresses: list[str], error: str = "", code: int | None = None, answered: bool = True
) -> Resolution:
    return Resolution(
        subject=question.subject,
        source=question.source,
        name=question.name,
        role=question.role,
        addresses=tuple(addresses),
        error=error,
        code=code,
        answered=answered,
    )


PROBES = (Probe(name="names", gives=(Resolution, ReverseLookup), take=take, risk="network"),)
