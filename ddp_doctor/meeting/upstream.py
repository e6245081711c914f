"""How the host of one machine's ranks comes together with those of other machines: as their host, or as their guest."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Literal

from ddp_doctor.meeting.connection import Connection
from ddp_doctor.meeting.messages import MOST_HEARD
from ddp_doctor.meeting.task import Task
from ddp_doctor.meeting.venue import PortVenue

CONNECT_SECONDS = 2.0
AGAIN_SECONDS = 0.3


class Upstream:
    """The way to the other machines. It has a `listener` where this machine hosts, a `connection` where it is a guest."""

    def __init__(self, find: Callable[[], PortVenue | None]) -> None:
        """`find` looks up where the ranks meet; it may block, and gives None where they meet nowhere else."""
        self._find = find
        self._venue: PortVenue | None = None
        self._finding: Task[PortVenue | None] | None = None
        self._attempt: Task[socket.socket | Connection | str] | None = None
        self._next = 0.0
        self._first = 0
        self.listener: socket.socket | None = None
        self.connection: Connection | None = None
        self.nowhere = False
        """Whether there is no other machine to meet."""
        self.trouble = ""
        """Why it has not come together so far."""
        self.way: Literal["", "refused", "dropped", "unreachable"] = ""
        """How the last attempt to connect failed."""

    @property
    def place(self) -> str:
        """Where hosts meet, HOST:PORT, once that is known."""
        return str(self._venue) if self._venue is not None else ""

    def poll(self) -> bool:
        """Go on looking; True in the moment it has become host or guest."""
        if self.nowhere or self.listener is not None or self.connection is not None:
            return False
        if self._venue is None:
            return self._look_up()
        if self._attempt is None:
            if time.monotonic() >= self._next:
                self._attempt = Task(self._try, "meeting")
            return False
        if not self._attempt.done:
            return False
        got, self._attempt = self._attempt.result, None
        self._next = time.monotonic() + AGAIN_SECONDS
        if isinstance(got, socket.socket):
            self.listener = got
        elif isinstance(got, Connection):
            self.connection = got
        else:
            self.trouble = got or "no attempt to meet other hosts came to an end"
        return not isinstance(got, str) and got is not None

    def lost(self, silent: bool) -> None:
        """The host of the meeting is gone, or has fallen silent: look for another."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.trouble = "the host of the meeting fell silent" if silent else "the host of the meeting ended"
            if silent:
                self._first = PortVenue.generations - 1

    def close(self) -> None:
        """Give back what it holds."""
        if self._attempt is not None:
            self._attempt.join(CONNECT_SECONDS + 0.5)
            if isinstance(self._attempt.result, (socket.socket, Connection)):
                self._attempt.result.close()
        if self._finding is not None:
            self._finding.join(0.5)
        for each in (self.listener, self.connection):
            if each is not None:
                each.close()

    def _look_up(self) -> bool:
        if self._finding is None:
            self._finding = Task(self._find, "address")
        elif self._finding.done:
            self._venue = self._finding.result
            self.nowhere = self._venue is None
        return False

    def _try(self) -> socket.socket | Connection | str:
        assert self._venue is not None
        found = self._venue.connect(range(self._first, PortVenue.generations), CONNECT_SECONDS)
        if found is not None:
            return Connection(found[0], MOST_HEARD)
        self.way = self._venue.way
        try:
            return self._venue.listen(self._first) or f"nobody answers at {self._venue}"
        except OSError as error:
            return f"nobody answers at {self._venue}, and it cannot be opened here: {error.strerror}"
