"""DDP303: the master or NCCL needs an address family that no interface has, or an address that is valid on one link only."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ddp_doctor.facts.names import Interface, NcclInterface, NcclSockets, Resolution, Route
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import paths
from ddp_doctor_checks.network import ip_family_live as live
from ddp_doctor_checks.network.ip_family_master import of_master
from ddp_doctor_checks.network.ip_family_paths import from_paths

FAMILIES = ("AF_INET", "AF_INET6")


class IpFamily(Check):
    id, name = "DDP303", "ip-family"
    title = "NCCL uses an address family or IPv6 address the other ranks cannot reach"
    needs = (NcclInterface, Meeting)
    also_reads = (Interface, NcclSockets, Resolution, Route, *live.READS, *paths.READS)
    # nothing is known of ranks on the other side of a network that cannot be reached
    explains = ("DDP101",)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.COMM_BOOTSTRAP, Stage.TRANSPORT})
    told = Told(
        because="some ranks use IPv6 and others IPv4, or a link-local IPv6 address that is good on its own link only",
        fixes=(
            Fix(
                title="use one family everywhere",
                commands=("export NCCL_SOCKET_FAMILY=AF_INET", "export MASTER_ADDR=IPV4_ADDRESS_OF_NODE_0"),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for found in live.from_job(facts):
            yield self.finding(**found)
        for path in from_paths(facts):
            yield self.finding(**path)
        for meeting in facts[Meeting]:
            here = facts.on(meeting.subject.host)
            for master in of_master(meeting, here):
                yield self.finding(**master)
            asked = here.first(NcclInterface)
            if asked is None:
                continue
            family = asked.socket_family
            other = "AF_INET" if family == "AF_INET6" else "AF_INET6"
            unset = Fix(title="let NCCL take the first address it finds", commands=("unset NCCL_SOCKET_FAMILY",))
            if asked.error and family in FAMILIES and not asked.ifname:
                yield self.finding(
                    f"NCCL_SOCKET_FAMILY={family}, but no interface of this node has such an address",
                    because=f"NCCL looks at no other family and fails at once ({asked.error})",
                    evidence=[asked.evidence(), *(each.evidence() for each in here[Interface] if each.addresses)],
                    fixes=[
                        Fix(
                            title="use the other family, on every node",
                            commands=(f"export NCCL_SOCKET_FAMILY={other}",),
                        ),
                        unset,
                    ],
                )
            elif asked.address and ":" in asked.address and ipaddress.ip_address(asked.address).is_link_local:
                several = (meeting.nodes or 1) > 1
                yield self.finding(
                    f"NCCL will use {asked.interface} with {asked.address}, an IPv6 address that is valid on its own link only",
                    because="a node on another link, or with another number for the interface, "
                    "fails to connect with `Network is unreachable`",
                    evidence=[asked.evidence()] + [each.evidence() for each in here[NcclSockets]],
                    severity=Severity.ERROR if several else Severity.NOTE,
                    confidence=Confidence.LIKELY,
                    fixes=[_routable(asked, here)],
                )
            elif family and family not in FAMILIES:
                yield self.finding(
                    f"NCCL_SOCKET_FAMILY={family!r} means nothing to NCCL, which ignores it",
                    because="only AF_INET and AF_INET6 have an effect",
                    evidence=[asked.evidence(f"NCCL_SOCKET_FAMILY={family}, NCCL uses {asked.address}")],
                    severity=Severity.NOTE,
                    fixes=[unset],
                )


def _routable(asked: NcclInterface, here: Facts) -> Fix:
    v4 = [address for each in here[Interface] if not each.loopback for address in each.addresses if ":" not in address]
    if v4:
        return Fix(title="use IPv4, on every node", commands=("export NCCL_SOCKET_FAMILY=AF_INET",))
    return Fix(
        title="give the interface an address that routes, another one on every node",
        commands=(f"sudo ip -6 addr add fd00:ddb::1/64 dev {asked.interface}",),
        needs="root",
    )
