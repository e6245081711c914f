"""A rank whose node has no way to MASTER_ADDR, or hears nothing from there."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.names import Interface, Resolution, Route, addresses_of, lacking_family
from ddp_doctor.facts.paths import PathTry
from ddp_doctor.facts.rendezvous import Meeting, unheard_answers
from ddp_doctor.model import Confidence, Facts, Fix, Severity


def without_a_way(meeting: Meeting, here: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `BadMasterAddr.finding`; torch tries every address of the name, so one with a way is enough."""
    addresses = addresses_of(meeting.address, here[Resolution])
    routes = [route for route in here[Route] if route.to in addresses]
    if meeting.hosts or not routes or lacking_family(addresses, here[Interface]):
        return
    name = f"{meeting.address_variable or 'MASTER_ADDR'}={meeting.address}"
    if all(route.error for route in routes):
        if all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
            return
        why = ", ".join(dict.fromkeys(route.error for route in routes))
        yield {
            "summary": f"this node has no route to {name}: {why}",
            "because": "no rank of this node can connect to rank 0's store, whether it runs or not; each tries again until "
            "its time-out (10 or 30 min by default)",
            "evidence": [
                *(route.evidence(f"{route.to}: {route.text()}") for route in routes),
                *(answer.evidence() for answer in unheard_answers(meeting, here)),
                *(each.evidence() for each in here[Interface]),
            ],
            "confidence": Confidence.LIKELY,
            "fixes": [
                Fix(
                    title="an address of node 0 that this node has a route to",
                    commands=(
                        "ip -br addr   # on node 0",
                        f"ip route get {addresses[0]}   # here, and again with each of those",
                    ),
                    needs="nothing",
                )
            ],
        }
    elif (unheard := unheard_answers(meeting, here)) and not any(
        each.ok and each.address in addresses for each in here[PathTry]
    ):
        yield {
            "summary": f"{name} may not be rank 0's node: nobody there answers this node",
            "because": "an address that no running host has, and a firewall that drops the connection, look alike from here",
            "evidence": [answer.evidence() for answer in unheard],
            "severity": Severity.WARNING,
            "confidence": Confidence.POSSIBLE,
            "fixes": [
                Fix(
                    title="see whether node 0 has that address",
                    commands=("ip -br addr   # on node 0",),
                    needs="nothing",
                )
            ],
        }
