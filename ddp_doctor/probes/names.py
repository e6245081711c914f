"""What the resolver says about this node's name and the address where the ranks meet."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.names import Resolution
from ddp_doctor.host import Host
from ddp_doctor.interpret.meeting import meeting, rendezvous_endpoint
from ddp_doctor.model import Absent, Facts, Subject


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
    if not asked:
        return
    answer = host.ask("resolve", {"names": list(asked)})
    for message in answer.messages:
        question = asked.pop(message.get("name", ""), None)
        if question is not None:
            yield _known(question, message.get("addresses", []), message.get("error", ""), message.get("code"))
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


PROBES = (Probe(name="names", gives=(Resolution,), take=take, risk="network"),)
