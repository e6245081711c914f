"""Who tries to reach whom: rank 0's machine with everybody, the ring, a sample beyond; after a failure those who know more."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ddp_doctor.meeting.calls import SECONDS, Target
from ddp_doctor.meeting.doors import Door
from ddp_doctor.meeting.messages import Listens, Tried, Tries

Pair = tuple[str, str]
"""From and to, by machine."""

FEW = 8
"""Up to so many machines each tries all others."""
SAMPLED = 4
MOST_KNOWN = 256
MOST_WITNESSES = 3
"""How many others try to reach a machine that one could not reach."""
PATIENCE_SECONDS = 7.0
"""For so long machines that have come are waited for to listen; a resolver that is silent takes five."""
QUIET_SECONDS = 3.0
"""Where ranks are still missing, those that are here begin after so long without a new machine."""
TURN_SECONDS = SECONDS + 2.5


@lru_cache(maxsize=1)
def planned(machines: tuple[str, ...]) -> frozenset[Pair]:
    """The pairs to try, in both directions; the first of the machines is rank 0's."""
    if len(machines) <= FEW:
        return frozenset((one, other) for one in machines for other in machines if one != other)
    pairs = {pair for other in machines[1:] for pair in ((machines[0], other), (other, machines[0]))}
    after = dict(zip(machines, (*machines[1:], machines[0]), strict=True))
    pairs |= {pair for one, other in after.items() for pair in ((one, other), (other, one))}
    chosen = random.Random(len(machines))
    for one in machines:
        pairs |= {(one, other) for other in chosen.sample(machines, SAMPLED) if other != one}
    return frozenset(pairs)


def further(failed: set[Pair], tried: set[Pair], machines: Sequence[str]) -> set[Pair]:
    """What tells more about what failed: the same again, the way back, and whether others reach that machine."""
    pairs = set(failed)
    for one, other in sorted(failed):
        pairs |= {(other, one)} - tried
        witnesses = [each for each in machines if each not in (one, other) and (each, other) not in tried]
        pairs |= {(each, other) for each in witnesses[:MOST_WITNESSES]}
    return pairs


class Paths:
    """The trial of all paths, led by the host of the job. `send` gives a machine what it has to try."""

    def __init__(self, send: Callable[[str, Tries], None]) -> None:
        self._send = send
        self._machines: dict[str, Listens] = {}
        self._tried: dict[Pair, dict[Any, dict[str, Any]]] = {}
        """By pair and listener the last that was said of it."""
        self._seen: dict[str, list[dict[str, Any]]] = {}
        self._probed: set[Pair] = set()
        self._reviewed: set[str] = set()
        """Machines that were asked once more what their listeners have seen, when all who tried them had given up."""
        self._turn = 0
        self._asked: set[Pair] = set()
        self._out: dict[str, tuple[Pair, ...]] = {}
        """By machine what it was asked to try: one pair for each listener, in the order it was told of them."""
        self._turn_ends = 0.0
        self._late: tuple[str, Door] | None = None
        self._last_listens = 0.0
        self._since = 0.0
        self._idle = False

    def listens(self, message: Listens, now: float) -> None:
        """A machine has opened its listeners, perhaps anew."""
        self._machines[message.machine] = message
        self._last_listens = now
        self._idle = False
        for pair in [pair for pair in self._asked if message.machine in pair]:
            self._asked.discard(pair)
            self._tried.pop(pair, None)

    def tried(self, message: Tried) -> None:
        """A machine says what came of its part of the turn."""
        self._seen[message.machine] = message.seen
        if message.turn != self._turn or message.machine not in self._out:
            return
        pairs = self._out.pop(message.machine)
        for pair, table in zip(pairs, message.tried, strict=False):
            self._tried.setdefault(pair, {})[(table.get("address"), table.get("port"))] = table

    def step(self, now: float, expected: set[str], settled: bool) -> None:
        """Go on. `expected` are the machines of the ranks that came; `settled` says that nobody else is waited for."""
        self._since = self._since or (now if settled else 0.0)
        if self._out:
            if now < self._turn_ends:
                return
            self._out.clear()  # who has not answered by now has stopped, or is cut off
        machines = [each.machine for each in sorted(self._machines.values(), key=lambda each: each.rank)]
        if len(machines) < 2 or not self._ready(now, expected, settled):
            return
        todo = planned(tuple(machines)) - self._asked
        if not todo:
            failed = {pair for pair, tables in self._tried.items() if _failed(tables)} - self._probed
            self._probed |= failed
            todo = frozenset(further(failed, set(self._tried), machines)) if failed else frozenset()
        calls = [(pair, door) for pair in sorted(todo) for door in self._machines[pair[1]].doors]
        if not calls and self._late is not None and self._late[0] in self._machines:
            last, door = self._late
            self._late = None
            calls = [((one, last), door) for one in machines if one != last]
        review = set() if calls else {other for (_, other), tables in self._tried.items() if _failed(tables)}
        review -= self._reviewed
        self._reviewed |= review
        self._idle = not calls and not review
        if not self._idle:
            self._begin(calls, review, now)

    def late(self, machine: str, door: Door) -> None:
        """One more listener of a machine, for all others to try when the rest is done."""
        self._late = (machine, door)
        self._reviewed.discard(machine)
        self._idle = False

    @property
    def idle(self) -> bool:
        """Whether all is tried, of at least two machines, that there was to try so far."""
        return self._idle and not self._out and len(self._machines) > 1

    def pending(self, now: float, expected: set[str], more: bool) -> bool:
        """Whether the verdict has to wait for more of it; `more` says that a late listener is still to be opened."""
        if len(expected) < 2:
            return False
        if self._out:
            return True
        late = not expected <= self._machines.keys() and (not self._since or now - self._since < PATIENCE_SECONDS)
        return late or (len(self._machines) > 1 and (more or not self._idle))

    @property
    def tables(self) -> list[dict[str, Any]]:
        """All that was tried and seen, as tables of facts."""
        return [
            table
            for tables in (*self._seen.values(), *(each.values() for each in self._tried.values()))
            for table in tables
        ]

    def _ready(self, now: float, expected: set[str], settled: bool) -> bool:
        if settled:
            return expected <= self._machines.keys() or now - self._since >= PATIENCE_SECONDS
        return now - self._last_listens >= QUIET_SECONDS

    def _begin(self, calls: Sequence[tuple[Pair, Door]], review: set[str], now: float) -> None:
        self._turn += 1
        self._turn_ends = now + TURN_SECONDS
        known = {door.nonce: each.host for each in self._machines.values() for door in each.doors}
        self._asked |= {pair for pair, _ in calls}
        by_machine: dict[str, list[tuple[Pair, Door]]] = {machine: [] for machine in review}
        for pair, door in calls:
            by_machine.setdefault(pair[0], []).append((pair, door))
        for machine, mine in sorted(by_machine.items()):
            self._out[machine] = tuple(pair for pair, _ in mine)
            targets = tuple(Target(host=self._machines[pair[1]].host, door=door) for pair, door in mine)
            # who may answer in a machine's place; of hundreds of hosts all would be more than all else that is said
            asked = known if len(known) <= MOST_KNOWN else {each.door.nonce: each.host for each in targets}
            self._send(machine, Tries(self._turn, targets, asked))


def _failed(tables: Mapping[Any, Mapping[str, Any]]) -> bool:
    return any(table.get("outcome") != "reached" for table in tables.values())
