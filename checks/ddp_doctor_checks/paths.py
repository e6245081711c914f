"""What the tried paths between hosts show: which ended elsewhere than at their listener, why, and where the root is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.names import Interface, lacking_family
from ddp_doctor.facts.paths import PathListener, PathTry
from ddp_doctor.model import Evidence, Facts

Cause = Literal[
    "same-address", "other-host", "family", "no-route", "interface", "translated", "ports", "store", "silent"
]
READS = (PathListener, PathTry, Attendee, Interface)
MOST_SHOWN = 6


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """Paths that fail for one reason, into one host (`root` is that host) or out of one."""

    cause: Cause
    root: str
    inbound: bool
    tries: tuple[PathTry, ...]
    listeners: tuple[PathListener, ...] = ()

    @property
    def first(self) -> PathTry:
        """One of them, to be quoted."""
        return min(self.tries, key=lambda each: (each.subject.host, each.to))

    @property
    def sources(self) -> tuple[str, ...]:
        """The hosts that did not get through."""
        return tuple(sorted({each.subject.host for each in self.tries}))

    @property
    def targets(self) -> tuple[str, ...]:
        """The hosts that were not reached."""
        return tuple(sorted({each.to for each in self.tries}))

    @property
    def interface(self) -> str:
        """The interface of the address that was not reached."""
        return next((each.interface for each in self.listeners if each.address == self.first.address), "")

    @property
    def direction(self) -> str:
        """`from node1 to node0`."""
        return f"from {named(self.sources)} to {named(self.targets)}"

    @property
    def observed(self) -> bool:
        """Whether each listener was seen to have room for the connection that did not come."""
        took = {(each.subject.host, each.port) for each in self.listeners if each.took}
        return all((each.to, each.port) in took for each in self.tries)

    def evidence(self) -> list[Evidence]:
        """What was tried, and what the listeners saw."""
        shown = {(each.to, each.port) for each in self.tries[:MOST_SHOWN]}
        return [each.evidence() for each in self.tries[:MOST_SHOWN]] + [
            each.evidence() for each in self.listeners if (each.subject.host, each.port) in shown
        ]


def broken(facts: Facts) -> list[Broken]:
    """Each root once, the paths that fail for the same reason at the same end together."""
    by_cause: dict[Cause, list[PathTry]] = defaultdict(list)
    by_pair: dict[tuple[str, str], list[PathTry]] = defaultdict(list)
    for each in facts[PathTry]:
        by_pair[(each.subject.host, each.to)].append(each)
    for each in facts[PathTry]:
        # where a host is merely known nobody connects to but the ranks of torch's store, on its own port
        if not each.ok and set(each.uses) != {"host"}:
            by_cause[_cause(each, facts, by_pair)].append(each)
    return [
        Broken(
            cause=cause,
            root=root,
            inbound=inbound,
            tries=tuple(tries),
            listeners=tuple(each for each in facts[PathListener] if each.subject.host in {one.to for one in tries}),
        )
        for cause, failed in by_cause.items()
        for root, inbound, tries in (_by_address if cause == "same-address" else _roots)(failed)
    ]


def of(facts: Facts, *causes: Cause) -> list[Broken]:
    """Those of these causes."""
    return [each for each in broken(facts) if each.cause in causes]


def ranks_on(facts: Facts, hosts: Iterable[str]) -> list[int]:
    """The ranks of these hosts."""
    wanted = set(hosts)
    return sorted(each.rank for each in facts[Attendee] if each.subject.host in wanted and each.rank is not None)


def named(hosts: Iterable[str]) -> str:
    """These hosts in words."""
    each = tuple(hosts)
    return ", ".join(each[:4]) + (f" and {len(each) - 4} more" if len(each) > 4 else "")


def _roots(failed: list[PathTry]) -> list[tuple[str, bool, list[PathTry]]]:
    """The ends that explain these, the one that explains most first: into a host before out of one."""
    found = []
    left = list(failed)
    while left:
        into: dict[str, list[PathTry]] = defaultdict(list)
        out: dict[str, list[PathTry]] = defaultdict(list)
        for each in left:
            into[each.to].append(each)
            out[each.subject.host].append(each)
        target = max(into, key=lambda host: _pairs(into[host]))
        source = max(out, key=lambda host: _pairs(out[host]))
        inbound = _pairs(into[target]) >= _pairs(out[source])
        root, tries = (target, into[target]) if inbound else (source, out[source])
        found.append((root, inbound, tries))
        left = [each for each in left if each not in tries]
    return found


def _pairs(tries: list[PathTry]) -> int:
    return len({(each.subject.host, each.to) for each in tries})


def _by_address(failed: list[PathTry]) -> list[tuple[str, bool, list[PathTry]]]:
    """An address that several hosts have is one fault, whoever tried it."""
    groups: dict[str, list[PathTry]] = defaultdict(list)
    for each in failed:
        groups[each.address].append(each)
    return [(tries[0].to, True, tries) for tries in groups.values()]


def _cause(failed: PathTry, facts: Facts, by_pair: Mapping[tuple[str, str], Sequence[PathTry]]) -> Cause:
    between = by_pair[(failed.subject.host, failed.to)]
    if failed.own:
        return "same-address"
    if failed.outcome == "wrong-host":
        return "other-host"
    if failed.outcome == "silent":
        return "silent"
    if lacking_family([failed.address], facts.on(failed.subject.host)[Interface]):
        return "family"
    if (
        any(each.ok and each.address != failed.address and "host" in each.uses for each in between)
        and "host" not in failed.uses
    ):
        return "interface"
    if "store" in failed.uses and any(each.ok and each.address == failed.address for each in between):
        return "store"
    back = by_pair.get((failed.to, failed.subject.host), ())
    if any(each.translated for each in back):
        return "translated"
    if failed.outcome == "unreachable" and not any(each.ok for each in back):
        return "no-route"
    return "ports"
