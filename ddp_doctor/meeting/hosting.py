"""The host of a meeting: collects who is here, passes it on where other machines take part, has it judged, tells all."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.meeting.connection import Connection
from ddp_doctor.meeting.guests import Guest, Guests, Told
from ddp_doctor.meeting.identity import Identity, state
from ddp_doctor.meeting.member import silence
from ddp_doctor.meeting.messages import (
    VERSION,
    Alive,
    Came,
    Key,
    Listens,
    Message,
    Over,
    Pulse,
    Saw,
    Spoken,
    Tried,
    Tries,
    Verdict,
    Welcome,
    framed,
)
from ddp_doctor.meeting.neighbours import Neighbours
from ddp_doctor.meeting.roll import MOST_NAMED, Roll
from ddp_doctor.meeting.task import Task
from ddp_doctor.meeting.terms import OF_A_JOB, SPEAK_SECONDS, STOP_SECONDS, Terms
from ddp_doctor.meeting.upstream import Upstream
from ddp_doctor.meeting.venue import LocalVenue, peer

PULSE_SECONDS = 0.5
AHEAD_SECONDS = 2.0
"""How long ranks wait that have come after rank 0 went on."""
ALONE_SECONDS = 0.5
"""Ranks of one shell are all here by then, or some are elsewhere."""
GUEST_SECONDS = 1.0
"""How much longer than its own time a guest waits for the verdict of another machine."""
FAREWELL_SECONDS = 1.5
SHARED_PATIENCE_SECONDS = 10.0
"""A host that says nothing through a shared folder for so long is taken for stopped: its server may be slow."""
TICK = 0.05
CROWD = 128
"""From so many ranks on the host looks at the whole roll once a tick, not after each message."""

Tables = list[dict[str, Any]]


class Work(Protocol):
    """What the host of a meeting does with what it hears; each is called in a thread of its own."""

    def prepare(self) -> None:
        """Get ready to judge, while the others are still coming."""

    def observe(self, leader: Attendee) -> Tables:
        """Look at this machine as its first rank sees it."""

    def ahead(self, leader: Attendee, tables: Tables) -> bool:
        """Whether what was seen shows that rank 0 is in init already."""

    def judge(self, party: Sequence[Attendee], attendance: Attendance, seen: Sequence[Tables]) -> bytes:
        """The judgement that every rank is given."""


class Hosting:
    """One meeting. `run` gives this rank's verdict, or None where another meeting has taken over."""

    def __init__(
        self,
        listener: socket.socket,
        venue: LocalVenue,
        generation: int,
        me: Attendee,
        identity: Identity,
        work: Work,
        upstream: Upstream,
        started: float,
        end: float,
        lost: Attendee | None = None,
        terms: Terms = OF_A_JOB,
    ) -> None:
        self._listener, self._venue, self._generation = listener, venue, generation
        self._me, self._identity, self._work, self._upstream = me, identity, work, upstream
        self._started, self._end = started, end
        self._terms, self._observed_s = terms, terms.observed_s
        self._spoken = self._missed = False
        self._opened = time.monotonic()
        self._patience = silence(end - started)
        self._roll = Roll(identity.sure)
        self._roll.came(me, self._opened)
        if lost is not None:
            self._enter_lost(lost)
        self._guests = Guests(self._told)
        self._guests.welcome = framed(Welcome(me))
        self._guests.listen(listener, identity.here, venue.trusted, local=True)
        self._listening: list[socket.socket] = []
        self._preparing = Task(work.prepare, "preparation")
        self._observing: Task[Tables] | None = None
        self._thought = 0.0
        self._leader = me
        self._ahead = False
        self._judging: Task[bytes] | None = None
        self._party: tuple[Attendee, ...] = ()
        self._seen: dict[str, Tables] = {}
        self._pulse: Pulse | None = None
        self._pulsed = self._heard = self._looked = self._opened
        self._passed_on = False
        self._host: Attendee | None = None
        """Who hosts the job, where that is another machine."""
        self._neighbours = Neighbours(me, terms, self._pass_down)

    def run(self) -> Verdict | None:
        """Hold the meeting to its end."""
        try:
            while True:
                self._guests.serve(TICK)
                now = time.monotonic()
                self._beat(now)
                if len(self._roll) > CROWD and now - self._thought < TICK:
                    continue
                self._thought = now
                if self._terms.stopped() and now < self._end:
                    self._end, self._observed_s = now, STOP_SECONDS / 2
                if self._superseded(now):
                    return None
                self._observe(now)
                verdict = self._hear_upstream(now) if self._is_guest(now) else self._judge(now)
                if verdict is not None:
                    return verdict
        finally:
            self._guests.close()
            self._listener.close()
            self._upstream.close()
            self._neighbours.close()
            for task in (self._preparing, self._observing, self._judging):
                if task is not None:
                    task.join(1.0)

    def _told(self, message: Told) -> None:
        if isinstance(message, Spoken):
            self._spoken = True
            return
        if isinstance(message, (Alive, Listens, Tried)):
            self._neighbours.hear(message, time.monotonic())
            return
        if isinstance(message, Came):
            self._roll.came(message.attendee, time.monotonic())
            if message.lost is not None:
                self._enter_lost(message.lost)
        elif isinstance(message, Saw):
            self._seen[message.host] = message.tables
        else:
            self._roll.went(message.key, message.how, message.stayed_s)
        if self._upstream.connection is not None and self._passed_on:
            self._up(message)

    def _enter_lost(self, lost: Attendee) -> None:
        """Enter the host of an earlier meeting, who may yet come; what became of its process is seen at the end."""
        if all(each.key != lost.key for each in self._roll.entered):
            self._roll.came(lost, time.monotonic())
            self._roll.went(lost.key, "left", 0.0)

    def _beat(self, now: float) -> None:
        if now - self._pulsed < PULSE_SECONDS:
            return
        self._pulsed = now
        missing = self._roll.missing()
        own = Pulse(len(self._roll.entered), self._roll.expected, missing[:MOST_NAMED])
        self._guests.say(framed(self._pulse or own))

    def _superseded(self, now: float) -> bool:
        """Whether a later generation has begun, as where this process was stopped for a while."""
        if now - self._looked < 1.0:
            return False
        self._looked = now
        later = range(self._generation + 1, self._venue.generations)
        found = self._venue.connect(later, 0.2) if later else None
        if found is not None:
            found[0].close()
        return found is not None

    def _observe(self, now: float) -> None:
        here = [each for each in self._roll.entered if each.machine == self._me.machine]
        # rank 0's environment says most: it opens the store
        leader = min(here, key=lambda each: (each.rank is None, each.rank or 0), default=self._me)
        if self._observing is not None and self._observing.done:
            self._observed(self._observing.result or [], now)
        if self._observing is None:
            complete = len(here) >= (leader.local_world_size or leader.world_size or 1)
            again = self._me.subject.host in self._seen
            if again and self._terms.thorough:
                return
            due = leader.rank == 0 or complete or now - self._opened >= self._terms.observe_after_s
            # rank 0 may have come while the machine was looked at as another sees it
            if now < self._end and (due if not again else leader.rank == 0 != self._leader.rank):
                self._leader = leader
                if (leader.local_world_size or 0) < (leader.world_size or 1):
                    self._neighbours.look(leader)
                self._observing = Task(lambda: self._work.observe(leader), "observations")

    def _observed(self, tables: Tables, now: float) -> None:
        self._seen[self._me.subject.host] = tables
        self._observing = None
        if self._leader.rank != 0 and self._work.ahead(self._leader, tables):
            self._ahead = True
            self._end = min(self._end, now + AHEAD_SECONDS)
        if self._upstream.connection is not None and self._passed_on:
            self._up(Saw(self._me.subject.host, tables))

    def _settled(self, now: float) -> bool:
        return self._roll.settled(now) or now >= self._end

    def _is_guest(self, now: float) -> bool:
        """Whether another machine hosts; it is looked for as soon as some ranks cannot be on this one."""
        leader = self._roll.entered[0]
        elsewhere = (leader.local_world_size or 0) < (leader.world_size or 1)
        known = leader.local_world_size is not None and self._identity.sure
        late = now - self._opened >= ALONE_SECONDS
        if elsewhere and (known or late) and not self._roll.settled(now) and self._upstream.poll():
            for listener in self._upstream.listeners:
                if listener not in self._listening:
                    self._listening.append(listener)
                    self._guests.listen(listener, self._identity.everywhere, _from_elsewhere, local=False)
            if self._upstream.connection is not None:
                self._guests.watch(self._upstream.connection)
                self._heard = now
                self._passed_on = True
                for attendee in self._roll.entered:
                    self._up(Came(VERSION, self._identity.everywhere, attendee))
                for host, tables in self._seen.items():
                    self._up(Saw(host, tables))
        return self._upstream.connection is not None and now < self._end + self._terms.observed_s + GUEST_SECONDS

    def _pass_down(self, machine: str, tries: Tries) -> None:
        self._guests.say(framed(tries), lambda guest: guest.machine == machine)

    def _here(self) -> list[Attendee]:
        """The ranks of this machine that may live; a host that another took over from has `left`."""
        return [each for each in self._roll.entered if each.machine == self._me.machine and each.gone in ("", "left")]

    def _silent(self, now: float) -> dict[Key, bool]:
        """Ranks from whose host nothing comes any more, and whether its kernel still takes what is sent."""
        guests = [guest for guest in self._guests if guest.machine]
        alive = {key for guest in guests if not guest.silent(now) for key in guest.keys}
        return {
            key: guest.connection.acknowledged
            for guest in guests
            if guest.silent(now)
            for key in guest.keys
            if key not in alive
        }

    def _machines_lost(self, now: float) -> set[str]:
        guests = [guest for guest in self._guests if guest.machine]
        return {guest.machine for guest in guests} - {guest.machine for guest in guests if not guest.silent(now)}

    def _up(self, message: Message) -> None:
        if self._upstream.connection is not None:
            if isinstance(message, Came):
                message = msgspec.structs.replace(message, token=self._identity.everywhere)
            self._upstream.connection.send(message)

    def _hear_upstream(self, now: float) -> Verdict | None:
        connection = self._upstream.connection
        if connection is None:
            return None
        connection.flush()
        if self._passed_on:
            for said in self._neighbours.messages(now, self._here):
                self._up(said)
        for message in connection.receive():
            self._heard = now
            if isinstance(message, Welcome):
                self._host = message.host
            elif isinstance(message, Tries):
                self._neighbours.take(message)
            elif isinstance(message, Pulse):
                self._pulse = message
            elif isinstance(message, Verdict):
                self._guests.say(framed(message))
                self._hear_out(message, connection)
                self._guests.dismiss(lambda guest: True, FAREWELL_SECONDS)
                return message
        silent = now - self._heard > (SHARED_PATIENCE_SECONDS if self._upstream.shared else self._patience)
        if connection.closed or silent:
            if silent and not connection.closed and self._host is not None and connection.acknowledged:
                # the kernel there takes what is sent, and the process is stopped, or as good as that
                self._roll.came(self._host, now)
                self._roll.went(self._host.key, "silent", 0.0)
            self._guests.unwatch(connection)
            self._passed_on = False
            self._neighbours.forget()
            self._pulse = None
            self._upstream.lost(silent)
        return None

    def _judge(self, now: float) -> Verdict | None:
        if self._judging is None:
            mute = self._machines_lost(now)
            unseen = self._unseen(mute)
            if self._upstream.listeners:
                self._neighbours.lead(now, self._here, mute, self._settled(now), not unseen)
            quiet = any(guest.quiet(now) for guest in self._guests)
            waited_for = unseen or quiet or self._neighbours.pending(now, mute)
            kept = waited_for and now < self._end + self._observed_s
            if kept and now >= self._end and not self._missed and self._terms.missed is not None:
                self._missed = True
                self._terms.missed(self._roll.missing())
            if self._settled(now) and not kept:
                self._look_for_stopped(self._silent(now))
                self._party = self._roll.party(over=now >= self._end)
                by = self._by()
                came = by == "folder" and any(each.rank == 0 for each in self._party)
                lost = self._upstream.folder_trouble if came else self._upstream.reason
                attendance = self._roll.attendance(self._party, now - self._started, by, lost)
                ahead = self._ahead and 0 in attendance.missing
                attendance = msgspec.structs.replace(
                    attendance,
                    ahead=ahead,
                    place=self._upstream.place,
                    way=self._upstream.way if lost and not came else "",
                )
                party, seen = self._party, [*self._seen.values(), self._neighbours.tables]
                self._judging = Task(lambda: self._work.judge(party, attendance, seen), "judgement")
            return None
        if not self._judging.done:
            return None
        if self._judging.error is not None:
            raise self._judging.error
        return self._deliver(self._judging.result or b"")

    def _by(self) -> str:
        # what was left in the folder by others is a guest there and nobody of this party
        if self._upstream.shared and len({(each.machine, each.subject.host) for each in self._party}) > 1:
            return "folder"
        return "port" if self._upstream.listeners else "socket" if len(self._party) > 1 else "alone"

    def _unseen(self, silent: set[str]) -> bool:
        """Whether probes that the verdict waits for are still out."""
        hosts = {self._me.subject.host}
        if self._terms.thorough:
            hosts.update(
                each.subject.host for each in self._roll.entered if not each.gone and each.machine not in silent
            )
        return self._observing is not None or not hosts <= self._seen.keys()

    def _look_for_stopped(self, silent: dict[Key, bool]) -> None:
        """A stopped process holds its connection; only the kernel of its machine tells."""
        for each in self._roll.entered:
            if each.key in silent and not each.gone:
                self._roll.went(each.key, "silent" if silent[each.key] else "cut-off", each.stayed_s)
            elif tuple(each.key) in self._neighbours.stopped:
                self._roll.went(each.key, "stopped", each.stayed_s)
            if each.machine != self._me.machine or each.subject.pid is None or each.gone == "ended":
                continue
            letter = state(each.subject.pid)
            if letter == "T":
                self._roll.went(each.key, "stopped", each.stayed_s)
            elif each.gone and letter in ("", "Z", "X"):
                self._roll.went(each.key, "ended", each.stayed_s)

    def _deliver(self, judgement: bytes) -> Verdict | None:
        speaker = next((each for each in self._party if not each.gone), self._me)
        verdict = Verdict(judgement, speaker.key)
        keys: set[Key] = {each.key for each in self._party}

        def of_party(guest: Guest) -> bool:
            return not keys.isdisjoint(guest.keys)

        mine = self._me.key in keys
        if mine and self._roll.sure:
            # who came while it was judged is of this job too, and hears the same as all others
            keys.update(each.key for each in self._roll.entered)
        self._guests.say(framed(verdict), of_party)
        self._hear_out(verdict, None)
        self._guests.say(framed(Spoken()), of_party)
        self._guests.dismiss(of_party, FAREWELL_SECONDS)
        self._roll.forget(self._party)
        self._judging = None
        if mine:
            self._guests.say(framed(Over()))
        return verdict if mine else None

    def _hear_out(self, verdict: Verdict, connection: Connection | None) -> None:
        """Have somebody speak for all, and return once that is done; `connection` leads to the host of another machine.

        A speaker that is lost before is stood in for, by the host of the job.
        """
        speak = self._terms.speak
        if speak is None:
            return
        give_up = time.monotonic() + SPEAK_SECONDS
        mine = verdict.speaker == self._me.key
        if mine:
            speak(verdict)
        here = not mine and any(verdict.speaker in guest.keys for guest in self._guests)
        while here and not self._spoken and time.monotonic() < give_up:
            self._guests.serve(TICK)
            here = any(verdict.speaker in guest.keys for guest in self._guests)
        if connection is None:
            if not mine and not self._spoken:
                speak(verdict)
            return
        if mine or self._spoken:
            connection.send(Spoken())
        while not connection.closed and time.monotonic() < give_up:
            if any(isinstance(message, Spoken) for message in connection.receive()):
                break
            self._guests.serve(TICK)
        self._guests.say(framed(Spoken()))


def _from_elsewhere(sock: socket.socket) -> bool:
    """Whether a connection may be another machine's; through the folder they come from this very process."""
    return sock.family != socket.AF_UNIX or peer(sock) == (os.getpid(), os.getuid())
