"""How the host of one machine's ranks comes together with those of other machines: as their host, or as their guest."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Literal

from ddp_doctor.meeting.connection import Connection
from ddp_doctor.meeting.folder import ANSWER_SECONDS, Folder
from ddp_doctor.meeting.messages import MOST_HEARD
from ddp_doctor.meeting.task import Task
from ddp_doctor.meeting.venue import PortVenue

CONNECT_SECONDS = 2.0
AGAIN_SECONDS = 0.3
PORT_SECONDS = 3.0
"""After so long without a way to the port, hosts look into the shared folder, if there is one."""
CLAIM_SECONDS = 5.0
"""For so long they look there for the host that has the address of rank 0, before one of the others hosts."""


class Upstream:
    """The way to the other machines. It has `listeners` where this machine hosts, a `connection` where it is a guest."""

    def __init__(self, find: Callable[[], PortVenue | None], folder: Folder | None = None) -> None:
        """`find` looks up where the ranks meet; it may block, and gives None where they meet nowhere else.

        The `folder` is the way of those that do not come together there. Who hosts at the port hosts in the folder as
        well, or is a guest of who was there before.
        """
        self._folder = folder
        self._began: float | None = None
        self._looked_at: float | None = None
        self._next_look = 0.0
        self._joining: Task[socket.socket | None] | None = None
        self._by_folder = False
        self._find = find
        self._venue: PortVenue | None = None
        self._finding: Task[PortVenue | None] | None = None
        self._attempt: Task[socket.socket | Connection | str] | None = None
        self._next = 0.0
        self._first = 0
        self.listeners: list[socket.socket] = []
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

    @property
    def shared(self) -> bool:
        """Whether some of the ranks come by the folder."""
        return self._folder is not None and (self._by_folder or self._folder.guests > 0)

    @property
    def reason(self) -> str:
        """Why the ranks of other machines could not be met, by the port and by the folder."""
        port = "" if self.nowhere else self.trouble
        return "; ".join(filter(None, (port, self.folder_trouble)))

    @property
    def folder_trouble(self) -> str:
        """Why ranks of other machines could not be met by the folder; empty where there is none."""
        return self._folder.trouble if self._folder is not None else ""

    def poll(self) -> bool:
        """Go on looking; True in the moment there is another listener, or a connection."""
        if self.connection is not None:
            return False
        self._began = self._began or time.monotonic()
        return self._poll_port() or self._poll_folder(time.monotonic())

    def _poll_port(self) -> bool:
        if self.nowhere or self.listeners:
            return False
        if self._venue is None:
            return self._look_up()
        if self._attempt is None:
            if time.monotonic() >= self._next:
                self._attempt = Task(self._try, "meeting")
            return False
        # who may be about to host in the folder must not be anybody's guest: two hosts would wait for each other
        if not self._attempt.done or self._joining is not None:
            return False
        got, self._attempt = self._attempt.result, None
        self._next = time.monotonic() + AGAIN_SECONDS
        if isinstance(got, socket.socket):
            self.listeners.append(got)
        elif isinstance(got, Connection):
            self.connection, self._by_folder = got, False
        else:
            self.trouble = got or "no attempt to meet other hosts came to an end"
        return not isinstance(got, str) and got is not None

    def _poll_folder(self, now: float) -> bool:
        folder = self._folder
        if folder is None or self._began is None or (self._joining is None and folder.listener is not None):
            return False
        if self._joining is None:
            if now < self._next_look:
                return False
            if self.listeners or self.nowhere or self.trouble or now - self._began > PORT_SECONDS:
                self._looked_at = self._looked_at or now
                claim = bool(self.listeners) or now - self._looked_at > CLAIM_SECONDS
                self._joining = Task(lambda: folder.join(claim), "shared folder")
            return False
        if not self._joining.done:
            return False
        got, self._joining = self._joining.result, None
        self._next_look = now + AGAIN_SECONDS
        if got is not None:
            self.connection, self._by_folder = Connection(got, MOST_HEARD), True
        elif folder.listener is not None:
            self.listeners.append(folder.listener)
        return got is not None or folder.listener is not None

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
        for each in (*self.listeners, self.connection):
            if each is not None:
                each.close()
        if self._folder is not None:
            if self._joining is not None:
                self._joining.join(ANSWER_SECONDS + 1.0)
                if self._joining.result is not None:
                    self._joining.result.close()
            self._folder.close()

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
