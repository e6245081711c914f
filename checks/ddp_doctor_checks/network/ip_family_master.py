"""MASTER_ADDR of an address family that this node does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.names import Interface, Resolution, Route, addresses_of, lacking_family
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Facts, Fix

IPV6_ON = "sudo sysctl -w net.ipv6.conf.all.disable_ipv6=0"


def of_master(meeting: Meeting, here: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `IpFamily.finding` where every address of the master is of a family that no interface has."""
    addresses = addresses_of(meeting.address, here[Resolution])
    family = lacking_family(addresses, here[Interface])
    if not family:
        return
    name = meeting.address_variable or "MASTER_ADDR"
    stands = "" if addresses == (meeting.address,) else f", which stands for {', '.join(addresses)} alone,"
    fixes = []
    if set(addresses) == {"::1"}:
        fixes.append(Fix(title="the same node by IPv4", commands=("export MASTER_ADDR=127.0.0.1",)))
    else:
        other = "IPv6" if family == "IPv4" else "IPv4"
        command = f"export MASTER_ADDR={other.upper()}_ADDRESS_OF_NODE_0"
        fixes.append(Fix(title=f"node 0's {other} address, on every node", commands=(command,)))
    if family == "IPv6":
        fixes.append(Fix(title="or switch IPv6 on", commands=(IPV6_ON,), needs="root"))
    yield {
        "summary": f"{name}={meeting.address}{stands} needs {family}, and no interface of this node has an {family} address",
        "because": "no rank of this node can connect to the store there, so each fails after its time-out",
        "evidence": [
            *(each.evidence() for each in here[Resolution] if each.name == meeting.address),
            *(each.evidence(f"{each.to}: {each.text()}") for each in here[Route] if each.to in addresses),
            *(each.evidence() for each in here[Interface] if each.addresses),
        ],
        "fixes": fixes,
    }
