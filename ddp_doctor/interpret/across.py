"""Which jobs of several hosts are one: those whose ranks look for one store, or are connected to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_doctor.facts.job import Connection
from ddp_doctor.interpret.family import ENDPOINT_OPTIONS, Family, endpoint_of, rank_of, script_of, size_of


def across_hosts(families: Sequence[Family], connections: Iterable[Connection]) -> list[list[Family]]:
    """The families of each job; a family is one host's."""
    groups: list[list[Family]] = []
    joined = _connected(families, tuple(connections)) if len({_host(each) for each in families}) > 1 else set()
    for place, family in enumerate(families):
        mine = [
            group
            for group in groups
            if any(
                _host(other) != _host(family)
                and ((families.index(other), place) in joined or _one_store(other, family))
                for other in group
            )
        ]
        merged = [each for group in mine for each in group]
        groups = [group for group in groups if group not in mine]
        groups.append([*merged, family])
    return groups


def _host(family: Family) -> str:
    return family.members[0].subject.host


def _one_store(one: Family, other: Family) -> bool:
    """Whether two families name one place for the store, or one loopback each and would make one world together."""
    ours, theirs = _places(one), _places(other)
    if any(not _is_loopback(place) for place in ours & theirs):
        return True
    left, right = one.of("rank"), other.of("rank")
    numbers = {rank_of(each) for each in left}, {rank_of(each) for each in right}
    sizes = {size_of(each) for each in (*left, *right)}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    return (
        bool(ours & theirs)
        and size is not None
        and None not in numbers[0] | numbers[1]
        and not numbers[0] & numbers[1]
        and len(numbers[0] | numbers[1]) <= size
        and {script_of(each)[:1] for each in left} == {script_of(each)[:1] for each in right}
    )


def _places(family: Family) -> set[str]:
    """Address and port of the store, as its processes have them in variables or options."""
    found = set()
    for process in family.members:
        where = endpoint_of(process)
        if where is not None:
            found.add(":".join(where))
        words = process.arguments
        for option, value in zip(words, [*words[1:], ""], strict=False):
            name, _, inline = option.partition("=")
            if name in ENDPOINT_OPTIONS and ":" in (inline or value):
                found.add(inline or value)
    return found


def _is_loopback(place: str) -> bool:
    return place.startswith((":", "localhost:", "127.", "::1:", "[::1]"))


def _connected(families: Sequence[Family], connections: Sequence[Connection]) -> set[tuple[int, int]]:
    """Pairs of families with the two ends of one connection; loopback is another network on each host."""
    owner = {
        (process.subject.host, process.pid): place
        for place, family in enumerate(families)
        for process in family.members
        if family.roles[process.pid] != "data-worker"
    }
    ends = {
        (each.local, each.local_port, each.peer, each.peer_port): place
        for each in connections
        if each.state != "LISTEN"
        and not _is_loopback(f"{each.local}:")
        and (place := owner.get((each.subject.host, each.subject.pid or 0))) is not None
    }
    found = set()
    for (local, port, peer, peer_port), place in ends.items():
        other = ends.get((peer, peer_port, local, port))
        if other is not None and other != place:
            found |= {(place, other), (other, place)}
    return found
