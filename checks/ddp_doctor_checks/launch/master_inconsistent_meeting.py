"""What a meeting before init shows of DDP111: ranks that will look for the store in different places."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks.disagreement import confidence, disagreement, met, whose

LOOPBACK = ("127.", "localhost", "::1")
WHY = (
    "rank 0 opens one store; a rank that asks elsewhere is refused there until its timeout, and rank 0 waits for it all "
    "that time"
)


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `MasterInconsistent.finding`, at most one set: ports, loopback on several hosts, or addresses."""
    attendees = tuple(each for each in met(facts) if each.address or each.port)
    if len(attendees) < 2:
        return
    ports = disagreement(attendees, lambda each: each.port.strip().lstrip("0"))
    machines = {each.machine for each in attendees}
    if ports is not None:
        found = disagreement(attendees, lambda each: f"{each.address}:{each.port}") or ports
        yield {
            "summary": f"the ranks look for the store in different places: {found.words()}",
            "because": WHY,
            "evidence": found.evidence(""),
            "fixes": [_same(facts, attendees, whose(ports.odd))],
            "confidence": confidence(facts, attendees),
            "ranks": ports.ranks,
        }
    elif len(machines) > 1 and all(each.address.startswith(LOOPBACK) for each in attendees):
        hosts = len(machines)
        yield {
            "summary": f"MASTER_ADDR is {attendees[0].address} for ranks of {hosts} hosts: each looks for the store on itself",
            "because": WHY,
            "evidence": [each.evidence() for each in attendees[:6]],
            "fixes": [
                Fix(
                    title="give every rank the address of rank 0's node",
                    commands=(
                        "export MASTER_ADDR=$(hostname -I | cut -d' ' -f1)   # on rank 0's node; the same value everywhere",
                    ),
                )
            ],
            "confidence": Confidence.CERTAIN,
            "ranks": [],
        }
    else:
        yield from _addresses(facts, attendees, len(machines))


def _addresses(facts: Facts, attendees: tuple[Attendee, ...], machines: int) -> Iterator[dict[str, Any]]:
    found = disagreement(attendees, lambda each: "loopback" if each.address.startswith(LOOPBACK) else each.address)
    # several spellings may well lead to one host, above all on that host itself
    if found is None or machines < 2:
        return
    zero = next((each.machine for each in attendees if each.rank == 0), None)
    if "loopback" in found.values and all(each.machine == zero for each in found.values["loopback"]):
        return
    yield {
        "summary": f"the ranks have different values of MASTER_ADDR: {found.words()}",
        "because": WHY,
        "evidence": found.evidence("MASTER_ADDR "),
        "fixes": [_same(facts, attendees, whose(found.odd))],
        "confidence": Confidence.LIKELY,
        "ranks": found.ranks,
    }


def _same(facts: Facts, attendees: tuple[Attendee, ...], odd: str) -> Fix:
    zero = next((each for each in attendees if each.rank == 0), attendees[0])
    return Fix(
        title=f"give {odd} the address and port of rank 0",
        commands=(f"export MASTER_ADDR={shlex.quote(zero.address)} MASTER_PORT={shlex.quote(zero.port)}",),
    )
