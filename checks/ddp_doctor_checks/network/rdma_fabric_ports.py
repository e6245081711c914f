"""What the RDMA ports of several hosts show of DDP304: one that is down, slower, or has another GID where NCCL looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.rdma import HcaPort
from ddp_doctor.model import Confidence, Facts, Fix, Severity
from ddp_doctor_checks.hcas import by_host, setting, usual

LOOK = "grep . /sys/class/infiniband/{hca}/ports/{port}/{{state,phys_state,link_layer,rate}}   # on {host}"
GIDS = (
    "for n in $(seq 0 15); do echo $n $(cat {place}/gids/$n {place}/gid_attrs/types/$n 2>/dev/null); done   # on {host}"
)


def from_ports(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RdmaFabric.finding`, one set for each port that differs."""
    hosts = by_host(facts)
    for name in sorted({name for ports in hosts.values() for name in ports}):
        ports = {host: each[name] for host, each in hosts.items() if name in each}
        yield from _down(ports, hosts)
        active = {host: each for host, each in ports.items() if each.active}
        if len(active) > 1:
            yield from _slow(active)
            yield from _gids(facts, active)


def _down(ports: dict[str, HcaPort], hosts: dict[str, dict[str, HcaPort]]) -> Iterator[dict[str, Any]]:
    """A port without a cable is normal where it is down on most hosts."""
    up = [each for each in ports.values() if each.active]
    for host, port in ports.items() if 2 * len(up) >= len(ports) else ():
        if port.active:
            continue
        others = any(each.active for each in hosts[host].values())
        yield {
            "summary": f"RDMA port {port.name} of {host} is {port.state} ({port.physical or 'no link state'}), and ACTIVE on "
            f"{len(up)} other host{'s' if len(up) > 1 else ''}",
            "because": "NCCL passes over a port that is not ACTIVE, so this host joins with fewer adapters than the others, "
            "whose connections to the missing one fail or take a detour"
            if others
            else "no RDMA port of this host is ACTIVE: NCCL falls back to sockets here while the others use RDMA, and the two "
            "never connect",
            "evidence": [port.evidence(), up[0].evidence()],
            "fixes": [
                Fix(
                    title=f"see the port, its cable and switch on {host} (InfiniBand that stays INIT lacks a subnet manager)",
                    commands=(LOOK.format(hca=port.hca, port=port.port, host=host),),
                    needs="nothing",
                ),
                Fix(
                    title="or leave that adapter out on every node, until it is mended",
                    commands=(f"export NCCL_IB_HCA='^={port.name}'",),
                ),
            ],
            "severity": Severity.WARNING if others else Severity.ERROR,
            "confidence": Confidence.LIKELY,
        }


def _slow(active: dict[str, HcaPort]) -> Iterator[dict[str, Any]]:
    common = usual({host: each.rate for host, each in active.items()})
    pattern = next((each for each in active.values() if each.rate == common), None)
    for host, port in active.items():
        if pattern is not None and 0 < port.gbps < pattern.gbps:
            yield {
                "summary": f"RDMA port {port.name} of {host} runs at {port.rate}, and at {pattern.rate} on most hosts",
                "because": "the link came up with fewer lanes or a lower speed, as with a bad cable; every collective waits "
                "for the slowest link",
                "evidence": [port.evidence(), pattern.evidence()],
                "fixes": [
                    Fix(
                        title=f"reseat or replace the cable, and look again, on {host}",
                        commands=(LOOK.format(hca=port.hca, port=port.port, host=host),),
                        needs="the network's admin",
                    )
                ],
                "severity": Severity.WARNING,
                "confidence": Confidence.LIKELY,
            }


def _gids(facts: Facts, active: dict[str, HcaPort]) -> Iterator[dict[str, Any]]:
    """Where NCCL_IB_GID_INDEX tells NCCL to take one entry; without it, NCCL from 2.21 on looks for the right one itself."""
    sorts: dict[str, str] = {}
    for host, port in active.items():
        index = setting(facts, host, "NCCL_IB_GID_INDEX")
        if index is None or not index.value.isdigit() or port.link_layer != "Ethernet":
            continue
        gid = port.gid(int(index.value))
        sorts[host] = f"GID {index.value}: {gid.sort if gid else 'empty'}"
    if len(set(sorts.values())) < 2:
        return
    common = usual(sorts)
    filled = next((each for each in sorts.values() if not each.endswith("empty")), None)
    pattern = common or filled
    for host, sort in sorts.items():
        if sort == pattern:
            continue
        port = active[host]
        other = next(each for each, has in sorts.items() if has == pattern)
        place = f"/sys/class/infiniband/{port.hca}/ports/{port.port}"
        yield {
            "summary": f"the GID table of RDMA port {port.name} differs on {host}: {sort}; on {other} {pattern}",
            "because": "NCCL_IB_GID_INDEX takes that entry on every host, and with an empty one or one of another type the "
            "queue pairs of the two ends do not connect",
            "evidence": [
                active[each].evidence(
                    f"{active[each].name} "
                    + "; ".join(
                        f"{gid.index}: {gid.address} {gid.type} {gid.netdev}".rstrip() for gid in active[each].gids[:8]
                    )
                )
                for each in (host, other)
            ],
            "fixes": [
                Fix(
                    title="let NCCL choose the entry itself (2.21 and later)",
                    commands=("unset NCCL_IB_GID_INDEX",),
                ),
                Fix(
                    title="or see the table, and give the interface the address that the others have there",
                    commands=(GIDS.format(place=place, host=host),),
                    needs="nothing",
                ),
            ],
            "confidence": Confidence.LIKELY,
        }
