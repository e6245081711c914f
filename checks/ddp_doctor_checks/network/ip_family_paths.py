"""What the tried paths show of DDP303: an address that NCCL or Gloo will tell, of a family that another host does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.names import Interface
from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.network.ip_family_master import IPV6_ON
from ddp_doctor_checks.paths import named, of, ranks_on

FAMILIES = {True: ("IPv6", "AF_INET"), False: ("IPv4", "AF_INET6")}
"""By whether an address is one of IPv6: its family, and NCCL's name of the other."""
LIBRARIES = {"nccl": "NCCL", "gloo": "Gloo"}


def from_paths(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `IpFamily.finding`, one set for each end."""
    for found in of(facts, "family"):
        first = next((each for each in found.tries if set(each.uses) & LIBRARIES.keys()), None)
        if first is None:
            continue  # torch tries every address of the master's name, so that one of another family is no fault
        family, other = FAMILIES[":" in first.address]
        who = " and ".join(LIBRARIES[use] for use in first.uses if use in LIBRARIES)
        lacking = [each for each in facts[Interface] if each.subject.host in found.sources and not each.loopback]
        fixes = [
            Fix(
                title="let NCCL use the family that all have, on every node",
                commands=(f"export NCCL_SOCKET_FAMILY={other}",),
            ),
            Fix(
                title=f"let the name of {found.targets[0]} stand for its other address first, for Gloo",
                commands=(f"getent ahosts {found.targets[0]}; sudoedit /etc/hosts   # on {found.targets[0]}",),
                needs="root",
            ),
        ]
        if family == "IPv6":
            fixes.append(Fix(title=f"or switch IPv6 on, on {named(found.sources)}", commands=(IPV6_ON,), needs="root"))
        yield {
            "summary": f"{who} of {named(found.targets)} will listen on {first.address}, and {named(found.sources)} has no "
            f"{family} address to reach it from",
            "because": f"{who} tells one address to all ranks, whatever families they have: the connection fails at once there",
            "evidence": found.evidence() + [each.evidence() for each in lacking if each.addresses][:6],
            "fixes": fixes,
            "ranks": ranks_on(facts, (*found.sources, *found.targets)),
        }
