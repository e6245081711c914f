"""What a machine has to do with the others besides the roll: say that it lives, listen for them, and try to reach them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.meeting.calls import call
from ddp_doctor.meeting.doors import Doors, Place
from ddp_doctor.meeting.identity import state
from ddp_doctor.meeting.messages import Alive, Listens, Message, Tried, Tries
from ddp_doctor.meeting.paths import Paths
from ddp_doctor.meeting.task import Task
from ddp_doctor.meeting.terms import Terms

BEAT_SECONDS = 0.5


class Neighbours:
    """Of the machine of `me`. `pass_down` gives another machine what it has to try, where this one hosts the job."""

    def __init__(self, me: Attendee, terms: Terms, pass_down: Callable[[str, Tries], None]) -> None:
        self._me, self._survey, self._pass_down = me, terms.survey, pass_down
        self._doors = Doors()
        self._surveying: Task[tuple[Place, ...]] | None = None
        self._calling: Task[Tried] | None = None
        self._listens: Listens | None = None
        self._store: list[Place] = []
        """MASTER_PORT, opened when nobody's probes ask any more what answers there."""
        self._told = False
        self._beat = 0.0
        self._paths = Paths(self._send)
        self._alive: dict[str, Alive] = {}

    def look(self, leader: Attendee) -> None:
        """Find out where this machine listens, as its first rank sees it."""
        if self._survey is not None and self._surveying is None:
            survey = self._survey
            self._surveying = Task(lambda: survey(leader), "survey")

    def forget(self) -> None:
        """The host of the job is another now, and has to be told anew."""
        self._told = False

    def messages(self, now: float, here: Callable[[], Sequence[Attendee]]) -> list[Message]:
        """What a guest has to tell the host of the job now; `here` gives the ranks of this machine."""
        if self._survey is None:
            return []
        self._listen(here)
        said: list[Message] = []
        if now - self._beat >= BEAT_SECONDS:
            self._beat = now
            said.append(self._lives(here()))
        if self._listens is not None and not self._told:
            self._told = True
            said.append(self._listens)
        if self._calling is not None and self._calling.done:
            if self._calling.result is not None:
                said.append(self._calling.result)
            self._calling = None
        return said

    def take(self, message: Tries) -> None:
        """Try what the host of the job says."""
        me = self._me
        if self._calling is None:
            self._calling = Task(lambda: self._called(message, me), "paths")

    def hear(self, message: Alive | Listens | Tried, now: float) -> None:
        """As the host of the job: what another machine tells."""
        if isinstance(message, Alive):
            self._alive[message.machine] = message
        elif isinstance(message, Listens):
            self._paths.listens(message, now)
        else:
            self._paths.tried(message)

    def lead(
        self, now: float, here: Callable[[], Sequence[Attendee]], silent: set[str], settled: bool, observed: bool
    ) -> None:
        """As the host of the job: go on with the paths. `silent` are machines from which nothing comes any more.

        `settled` says that no more ranks are waited for, `observed` that the probes of all machines are done.
        """
        for message in self.messages(now, here):
            if isinstance(message, (Alive, Listens, Tried)):
                self.hear(message, now)
        if observed and self._store and self._paths.idle:
            for door in self._doors.open(self._store):
                self._paths.late(self._me.machine, door)
            self._store = []
        self._paths.step(now, self._alive.keys() - silent, settled)

    def pending(self, now: float, silent: set[str]) -> bool:
        """Whether the verdict has to wait for paths."""
        return self._survey is not None and self._paths.pending(now, self._alive.keys() - silent, bool(self._store))

    @property
    def stopped(self) -> set[tuple[Any, ...]]:
        """The ranks that their machines say are stopped."""
        return {tuple(key) for each in self._alive.values() for key in each.stopped}

    @property
    def tables(self) -> list[dict[str, Any]]:
        """What was tried and seen, as tables of facts."""
        return self._paths.tables

    def close(self) -> None:
        """Listen no more."""
        for task in (self._surveying, self._calling):
            if task is not None:
                task.join(0.5)
        self._doors.close()

    def _listen(self, here: Callable[[], Sequence[Attendee]]) -> None:
        if self._listens is None and self._surveying is not None and self._surveying.done:
            places = self._surveying.result or ()
            self._store = [place for place in places if place.port]
            doors = self._doors.open([place for place in places if not place.port])
            rank = min((each.rank for each in here() if each.rank is not None), default=0)
            self._listens = Listens(self._me.machine, self._me.subject.host, rank, doors)

    def _lives(self, here: Sequence[Attendee]) -> Alive:
        stopped = [each.key for each in here if each.subject.pid is not None and state(each.subject.pid) == "T"]
        return Alive(self._me.machine, tuple(stopped))

    def _send(self, machine: str, tries: Tries) -> None:
        if machine == self._me.machine:
            self.take(tries)
        else:
            self._pass_down(machine, tries)

    def _called(self, message: Tries, me: Attendee) -> Tried:
        tried = call(message.targets, message.known, me.subject.host)
        return Tried(message.turn, me.machine, tried, self._doors.seen(me.subject.host))
