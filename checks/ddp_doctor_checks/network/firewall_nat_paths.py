"""What the tried paths show of DDP302: ports of a host that another does not reach, while the host itself can be reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.paths import PathListener, PathTry
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks.paths import Broken, named, of, ranks_on

WHAT = {"dropped": "is dropped", "refused": "is rejected", "unreachable": "is rejected"}


def from_paths(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `FirewallNat.finding`, one set for each end at which paths break."""
    for found in of(facts, "store", "ports", "translated"):
        back = _way_back(facts, found)
        sure = found.observed and (found.cause == "store" or back is not None or _others(facts, found))
        yield {
            "summary": _summary(found),
            "because": _because(found, back is not None),
            "evidence": found.evidence() + ([back.evidence()] if back else []),
            "fixes": _translated(found) if found.cause == "translated" else _let_in(facts, found),
            "confidence": Confidence.CERTAIN if sure else Confidence.LIKELY,
            "ranks": ranks_on(facts, found.targets if found.inbound else found.sources),
        }


def _summary(found: Broken) -> str:
    first = found.first
    sources, targets = named(found.sources), named(found.targets)
    what = WHAT.get(first.outcome, first.outcome)
    if found.cause == "store":
        return f"MASTER_PORT {first.port} of {targets} is closed to {sources}: what goes there {what}, while other ports answer"
    if found.cause == "translated":
        return f"{targets} is behind address translation: {sources} cannot reach its own address {first.address}"
    return f"TCP {found.direction} {what} on the ports that the kernel chooses, such as {first.address}:{first.port}"


def _because(found: Broken, back: bool) -> str:
    if found.cause == "store":
        return (
            "every rank has to connect to rank 0's store before init_process_group can return; the doctor listened on that "
            "very port, and the connection did not come in"
        )
    if found.cause == "translated":
        return (
            "NCCL and Gloo tell the other ranks the address that they have themselves; the others see another one, and "
            "what they send to the first is lost"
        )
    return "NCCL and Gloo connect to each other on such ports in both directions, not only to MASTER_PORT" + (
        ", and here only the other direction works" if back else ""
    )


def _way_back(facts: Facts, found: Broken) -> PathTry | None:
    """A path that works between the same two hosts the other way."""
    pairs = {(each.to, each.subject.host) for each in found.tries}
    return next((each for each in facts[PathTry] if each.ok and (each.subject.host, each.to) in pairs), None)


def _others(facts: Facts, found: Broken) -> bool:
    """Whether the hosts at both ends are reached by, or reach, somebody on such a port."""
    at_work = {host for each in facts[PathTry] if each.ok for host in (each.subject.host, each.to)}
    return {*found.sources, *found.targets} <= at_work


def _let_in(facts: Facts, found: Broken) -> list[Fix]:
    first = found.first
    port = f" --dport {first.port}" if found.cause == "store" else ""
    own = (each for each in facts[PathListener] if each.subject.host == first.subject.host and "host" in each.uses)
    source = next((each.address for each in own), "ADDRESS_OF_" + first.subject.host)
    table = "ip6tables" if ":" in first.address else "iptables"
    target = first.to
    out = Fix(
        title=f"let {first.subject.host} out to the others",
        commands=(f"sudo {table} -I OUTPUT -p tcp -j ACCEPT   # on {first.subject.host}",),
        needs=f"root on {first.subject.host}",
    )
    return [
        *(() if found.inbound else (out,)),
        Fix(
            title=f"let {found.sources[0]} in on {target}"
            + (
                ""
                if found.cause == "store"
                else ": all TCP ports, in both directions (a security group: all traffic from itself)"
            ),
            commands=(f"sudo {table} -I INPUT -s {source} -p tcp{port} -j ACCEPT   # on {target}",),
            needs=f"root on {target}",
        ),
        Fix(
            title="see the rules on both",
            commands=(f"sudo nft list ruleset; sudo {table} -S",),
            needs=f"root on {target} and {first.subject.host}",
        ),
    ]


def _translated(found: Broken) -> list[Fix]:
    return [
        Fix(
            title=f"run the ranks of {named(found.targets)} in the host's own network, without a bridge or gateway in between",
            commands=("docker run --network=host --ipc=host IMAGE",),
            needs="container restart",
        )
    ]
