"""What a running job shows of DDP303: ranks that look for an IPv6 master in a network without IPv6."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, Resolved, jobs, named
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks.network.ip_family_master import IPV6_ON

READS = (JobRank, Process, Resolved)
ASKING = ("refused", "no-answer")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `IpFamily.finding`, one set per job."""
    processes = {each.subject.process: each for each in facts[Process]}
    for view in jobs(facts):
        stuck = []
        for rank in view.ranks:
            process = processes.get(rank.subject.process)
            if process is None or rank.doing not in ASKING or process.ipv6 is not False:
                continue
            names = [
                each for each in facts[Resolved] if each.name == rank.master_address and each.network == process.network
            ]
            addresses = names[0].addresses if names else (rank.master_address.strip("[]"),)
            if addresses and all(_is_ipv6(each) for each in addresses):
                stuck.append(rank)
        if stuck:
            address = stuck[0].master_address
            yield {
                "summary": f"MASTER_ADDR {address} is an IPv6 address, and the network of {named(stuck)} has no IPv6",
                "because": "each try to connect fails at once, and the rank tries again until its timeout",
                "evidence": [
                    processes[rank.subject.process].evidence("no address in /proc/net/if_inet6 but loopback's")
                    for rank in stuck[:1]
                ]
                + [rank.evidence() for rank in stuck[:4]],
                "fixes": [
                    Fix(
                        title="node 0's IPv4 address, on every node",
                        commands=("export MASTER_ADDR=IPV4_ADDRESS_OF_NODE_0",),
                    ),
                    Fix(title="or switch IPv6 on", commands=(IPV6_ON,), needs="root"),
                ],
                "confidence": Confidence.CERTAIN,
                "ranks": [rank.rank for rank in stuck if rank.rank is not None],
            }


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).version == 6
    except ValueError:
        return False
