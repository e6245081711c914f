"""The connections of a host: who is on which, what they said, and who of them is gone."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator

from ddp_doctor.meeting.connection import Connection
from ddp_doctor.meeting.identity import start_time, state
from ddp_doctor.meeting.messages import (
    VERSION,
    Alive,
    Came,
    Key,
    Leave,
    Listens,
    Message,
    Refused,
    Saw,
    Spoken,
    Tried,
    Went,
)

MOURNING_SECONDS = 0.3
"""A process that dies closes its sockets before it is gone."""
MOST_AT_ONCE = 256
QUIET_SECONDS = 2.5
SECONDS_PER_GUEST = 0.005
"""What it takes to have thousands of them hear the verdict."""
SILENCE_SECONDS = 8.0
"""A machine that has told twice a second that it lives, and has said nothing for so long, is stopped or cut off."""


Told = Came | Saw | Went | Spoken | Alive | Listens | Tried


class Guest:
    """One connection, and the ranks that came by it: one, or all of a machine."""

    def __init__(self, connection: Connection, local: bool) -> None:
        self.connection = connection
        self.local = local
        self.keys: dict[Key, float] = {}
        """Each rank with the moment it came."""
        self.leaving = False
        self.machine = ""
        """Which one says that it lives, by this connection; empty for a single rank."""
        self.heard = 0.0

    def quiet(self, now: float) -> bool:
        """Whether a machine that told that it lives has missed several times to do so, and is not called silent yet."""
        return bool(self.machine) and QUIET_SECONDS < now - self.heard <= SILENCE_SECONDS

    def silent(self, now: float) -> bool:
        """Whether a machine that told that it lives does so no more."""
        return bool(self.machine) and now - self.heard > SILENCE_SECONDS


class Guests:
    """All of them, served from one selector. `tell` is given each message that counts."""

    def __init__(self, tell: Callable[[Told], None]) -> None:
        self._tell = tell
        self.welcome = b""
        """What everybody who comes is told first."""
        self._selector = selectors.DefaultSelector()
        self._tokens: dict[int, tuple[socket.socket, str, Callable[[socket.socket], bool], bool]] = {}
        self._guests: dict[int, Guest] = {}
        self._mourned: list[tuple[float, Key, float]] = []

    def listen(
        self, listener: socket.socket, token: str, trusted: Callable[[socket.socket], bool], local: bool
    ) -> None:
        """Take connections from this socket; each rank has to say the token."""
        self._tokens[listener.fileno()] = (listener, token, trusted, local)
        self._selector.register(listener, selectors.EVENT_READ)

    def watch(self, connection: Connection) -> None:
        """Wake up for this connection too; its owner reads it."""
        self._selector.register(connection, selectors.EVENT_READ)

    def unwatch(self, connection: Connection) -> None:
        """No longer wake up for it."""
        try:
            self._selector.unregister(connection)
        except (KeyError, ValueError):
            pass

    def serve(self, seconds: float) -> None:
        """Hear what has come within so many seconds."""
        for entry, events in self._selector.select(seconds):
            if entry.fd in self._tokens:
                self._accept(entry.fd)
            elif entry.fd in self._guests:
                guest = self._guests[entry.fd]
                if events & selectors.EVENT_WRITE:
                    guest.connection.flush()
                    self._listen_for(guest)
                if events & selectors.EVENT_READ:
                    self._hear(guest)
        self._bury()

    def say(self, message: bytes, only: Callable[[Guest], bool] = lambda guest: True) -> None:
        """Send a framed message to them."""
        for guest in list(self._guests.values()):
            if only(guest):
                guest.connection.send(message)
                self._listen_for(guest)

    def dismiss(self, only: Callable[[Guest], bool], seconds: float) -> None:
        """Close these connections, once what they were sent is out or the seconds are over.

        Other machines close theirs first: what they still say would make the kernel drop what they have not read.
        """
        leaving = [guest for guest in self._guests.values() if only(guest)]
        give_up = time.monotonic() + seconds + SECONDS_PER_GUEST * len(leaving)
        while any(
            (guest.connection.unsent or not guest.local)
            and not guest.connection.closed
            and not guest.silent(time.monotonic())
            for guest in leaving
        ):
            left = give_up - time.monotonic()
            if left <= 0:
                break
            self.serve(min(0.1, left))
        for guest in leaving:
            guest.keys.clear()
            if guest.connection.fileno() in self._guests:
                self._drop(guest)

    def __iter__(self) -> Iterator[Guest]:
        return iter(list(self._guests.values()))

    def close(self) -> None:
        """Close every connection; listeners belong to who opened them."""
        for guest in list(self._guests.values()):
            guest.connection.close()
        self._guests.clear()
        self._selector.close()

    def _accept(self, number: int) -> None:
        listener, token, trusted, local = self._tokens[number]
        for _ in range(MOST_AT_ONCE):
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # no descriptor left: those who cannot come in end at their own deadline
                time.sleep(0.01)
                return
            if not trusted(sock):
                sock.close()
                continue
            guest = Guest(Connection(sock, token=token), local)
            self._guests[sock.fileno()] = guest
            self._selector.register(guest.connection, selectors.EVENT_READ)

    def _hear(self, guest: Guest) -> None:
        for message in guest.connection.receive():
            guest.heard = time.monotonic()
            self._take(guest, message)
        if guest.connection.closed:
            self._drop(guest)

    def _take(self, guest: Guest, message: Message) -> None:
        if isinstance(message, Came):
            if message.version != VERSION or message.token != guest.connection.token:
                guest.connection.send(Refused("another job, or another version of ddp-doctor"))
                return
            guest.keys[message.attendee.key] = time.monotonic()
            if self.welcome:
                guest.connection.send(self.welcome)
            self._tell(message)
        elif isinstance(message, Alive) and guest.keys:
            guest.machine = message.machine
            self._tell(message)
        elif (isinstance(message, (Saw, Spoken, Listens, Tried)) and guest.keys) or (
            isinstance(message, Went) and message.key in guest.keys
        ):
            self._tell(message)
        elif isinstance(message, Leave):
            guest.leaving = True

    def _drop(self, guest: Guest) -> None:
        number = guest.connection.fileno()
        self._selector.unregister(guest.connection)
        del self._guests[number]
        guest.connection.close()
        now = time.monotonic()
        for key, came in guest.keys.items():
            if guest.leaving or not guest.local:
                self._tell(Went(key, "left", now - came))
            else:
                self._mourned.append((now + MOURNING_SECONDS, key, now - came))

    def _bury(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._mourned if entry[0] <= now]:
            self._mourned.remove(entry)
            _, key, stayed = entry
            if not any(key in guest.keys for guest in self._guests.values()):
                self._tell(Went(key, "left" if _lives(key) else "ended", stayed))

    def _listen_for(self, guest: Guest) -> None:
        if guest.connection.fileno() not in self._guests:
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.connection.unsent else 0)
        self._selector.modify(guest.connection, events)


def _lives(key: Key) -> bool:
    """Whether the process of a rank of this machine runs; one that waits to be reaped does not."""
    _, pid, started, _ = key
    if pid is None or start_time(pid) != started:
        return False
    return state(pid) not in ("", "Z", "X")
