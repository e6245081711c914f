"""Who waits for whom among the ranks of a job, and who is at fault: others wait for it, and it waits for nobody."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ddp_doctor.facts.job import Connection, JobRank, Place, StoreKeys, place_of
from ddp_doctor.model import Wait

GLOO_KEY = re.compile(r"/default_pg/(\d+)//cpu//\d+/(\d+)$")
TOGETHER = ("collective", "ddp", "new-group")
"""What ranks do together: one that does something else is waited for."""


def waits_of(
    rank: JobRank,
    everyone: Sequence[JobRank],
    missing: Iterable[int],
    connections: Mapping[Place, Sequence[Connection]],
    store: StoreKeys | None,
) -> tuple[Wait, ...]:
    """For whom one rank waits, as far as the evidence tells; `missing` are ranks that are not here at all."""
    others = [other for other in everyone if other is not rank and other.rank is not None and other.rank != rank.rank]
    known = {other.rank for other in others}
    absent = sorted(
        {*missing, *(each for each in range(rank.world_size or 0) if each != rank.rank and each not in known)}
    )
    absent = [each for each in absent if each < (rank.world_size or each + 1)]
    if any(other.role == "rank" and other.rank is None for other in everyone):
        absent = sorted(missing)
    if rank.doing in ("refused", "no-answer", "handshake"):
        peer = f"{rank.master_address}:{rank.master_port}"
        return (Wait(rank=None if rank.rank == 0 else 0, peer=peer),)
    if rank.doing == "waiting-for-clients":
        late = {other.rank for other in others if not _has_joined(other, connections)} | set(absent)
        return tuple(Wait(rank=number) for number in _in_order(late, rank))
    if rank.doing in ("store-key", "file-store"):
        late = {other.rank for other in others if not _has_published(other, rank)} | set(absent)
        keys = {}
        if store is not None:
            told = [match for key in store.absent if (match := GLOO_KEY.search(key))]
            keys = {int(match[2]): match[0] for match in told if match[1] == (rank.group or "0")}
            late |= set(keys)
        return tuple(Wait(rank=number, key=keys.get(number)) for number in _in_order(late, rank))
    if rank.doing == "gloo-mesh":
        return _mesh(rank, others, connections) or tuple(Wait(rank=number) for number in absent)
    if rank.doing == "store-barrier":
        late = {other.rank for other in others if not other.beyond_init and other.doing != "store-barrier"}
        return tuple(Wait(rank=number) for number in _in_order(late | set(absent), rank))
    if rank.doing == "communicator":
        late = {other.rank for other in others if other.doing != "communicator" or other.stage < rank.stage}
        return tuple(Wait(rank=number) for number in _in_order(late | set(absent), rank))
    if rank.doing in TOGETHER and rank.state != "running":
        apart = [other for other in others if not same_call(rank, other)]
        return tuple(Wait(rank=other.rank) for other in apart) + tuple(Wait(rank=number) for number in absent)
    return ()


def same_call(one: JobRank, other: JobRank) -> bool:
    """Whether two ranks take part in the same operation, as far as can be seen."""
    return (
        one.doing == other.doing
        and operation(one) == operation(other)
        and (one.group == other.group or not (one.group and other.group))
    )


def _in_order(late: set[int | None], rank: JobRank) -> list[int]:
    return sorted(number for number in late if number is not None and number != rank.rank)


POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
RECEIVING = {"recv", "irecv", "recv_object_list"}


def all_receive(ranks: Sequence[JobRank]) -> bool:
    """Whether every rank of the world waits to be sent something, so that nobody is left to send."""
    numbers = {
        rank.rank for rank in ranks if rank.operation in RECEIVING and rank.state == "waiting" and not rank.moved
    }
    return len(ranks) > 1 and numbers == set(range(max(len(ranks), *(rank.world_size or 0 for rank in ranks))))


def operation(rank: JobRank) -> str:
    """What it takes part in; a send and a receive are two sides of one thing."""
    return "point-to-point" if rank.operation in POINT_TO_POINT else rank.operation


def _has_joined(other: JobRank, connections: Mapping[Place, Sequence[Connection]]) -> bool:
    mine = connections.get(place_of(other.subject), ())
    return any(
        each.peer_port == other.master_port and each.state in ("ESTABLISHED", "CLOSE_WAIT") for each in mine
    ) and other.doing not in ("handshake",)


def _has_published(other: JobRank, rank: JobRank) -> bool:
    if (other.init_method, other.master_port) != (rank.init_method, rank.master_port) and "" not in (
        other.init_method,
        rank.init_method,
    ):
        return False
    return other.beyond_init or other.doing in ("store-key", "gloo-mesh", "store-barrier", "file-store")


def _mesh(
    rank: JobRank, others: Sequence[JobRank], connections: Mapping[Place, Sequence[Connection]]
) -> tuple[Wait, ...]:
    """Peers it tries to connect to; else those it has no connection with."""
    mine = connections.get(place_of(rank.subject), ())
    listening = {
        (each.local, each.local_port): other.rank
        for other in others
        for each in connections.get(place_of(other.subject), ())
        if each.state == "LISTEN"
    }
    tried = [each for each in mine if each.state == "SYN_SENT" and each.peer_port != rank.master_port]
    return tuple(
        Wait(rank=listening.get((each.peer, each.peer_port)), peer=f"{each.peer}:{each.peer_port}") for each in tried
    )


def culprits(ranks: Sequence[JobRank]) -> list[JobRank]:
    """Ranks that somebody waits for and that wait for nobody; in a cycle those whose call is not the majority's."""
    awaited = {wait.rank for rank in ranks for wait in rank.waits_for if wait.rank is not None}
    free = [rank for rank in ranks if rank.rank in awaited and not rank.waits_for]
    if free or len(ranks) < 3:
        return free
    calls = Counter((rank.doing, operation(rank), rank.group) for rank in ranks)
    (_, most), *rest = calls.most_common()
    if not rest or rest[0][1] == most:
        return []
    majority = calls.most_common(1)[0][0]
    return [rank for rank in ranks if (rank.doing, operation(rank), rank.group) != majority]
