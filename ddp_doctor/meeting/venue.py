"""Where a meeting is held. Whoever can bind its name hosts, everybody else connects; nobody has to be told which.

A name has generations: where the host of one has fallen silent without letting go of it, the next is used.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Literal

from ddp_doctor.meeting.identity import state

GENERATIONS = 4
BACKLOG = 4096
CREDENTIALS = struct.Struct("3i")

Name = tuple[int, "str | tuple[str, int]"]
"""A family of sockets, and an address in it."""


class Venue:
    """A name that sockets can be bound to, in each of its generations."""

    generations = GENERATIONS

    def __init__(self) -> None:
        self.failures: set[int] = set()
        """The errors of the last attempt to connect; ETIMEDOUT where nothing came back."""

    def listen(self, generation: int) -> socket.socket | None:
        """A listening socket; None where somebody else has the name. Raises OSError where nobody here can have it."""
        sock = None
        try:
            sock = self._bind(generation)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            if sock is not None:
                sock.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return sock

    def connect(self, generations: Sequence[int], seconds: float) -> tuple[socket.socket, int] | None:
        """A connection to the latest of these generations that has a host; None where none answers in time."""
        trying: list[tuple[int, socket.socket]] = []
        self.failures = set()
        for generation in generations:
            for family, address in self._names(generation):
                try:
                    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
                except OSError as error:
                    self.failures.add(error.errno or errno.EAFNOSUPPORT)
                    continue
                code = sock.connect_ex(address)
                if code in (0, errno.EINPROGRESS):
                    trying.append((generation, sock))
                else:
                    self.failures.add(code)
                    sock.close()
        give_up = time.monotonic() + seconds
        found: tuple[socket.socket, int] | None = None
        trying.sort(key=lambda each: -each[0])
        while trying and found is None:
            latest, sock = trying.pop(0)
            poll = select.poll()  # select() refuses descriptors above 1023, and training processes have many
            poll.register(sock, select.POLLOUT)
            ready = poll.poll(1000 * max(0.0, give_up - time.monotonic()))
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if ready else errno.ETIMEDOUT
            if code == 0 and self.trusted(sock):
                found = (sock, latest)
            else:
                self.failures.add(code)
                sock.close()
        for _, sock in trying:
            sock.close()
        return found

    def trusted(self, sock: socket.socket) -> bool:
        """Whether the peer may be believed to be of this user."""
        return True

    def _names(self, generation: int) -> list[Name]:
        """Family and address of each place to look for it."""
        raise NotImplementedError

    def _bind(self, generation: int) -> socket.socket:
        return bound(*self._names(generation)[0])


class LocalVenue(Venue):
    """An abstract unix socket: of this network namespace, gone with its last holder, and nothing in any file system."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = f"\0ddp-doctor/{os.getuid()}/{name}"

    def trusted(self, sock: socket.socket) -> bool:
        """Whether the peer runs as this user: anybody can bind an abstract name."""
        return peer(sock)[1] == os.getuid()

    def runs(self, sock: socket.socket) -> bool | None:
        """Whether the peer's process is there and not stopped; None where this PID namespace does not show it."""
        pid = peer(sock)[0]
        return state(pid) not in ("T", "t", "D", "Z", "X", "") if pid > 0 else None

    def _names(self, generation: int) -> list[Name]:
        return [(socket.AF_UNIX, f"{self._name}/{generation}")]


def peer(sock: socket.socket) -> tuple[int, int]:
    """PID and user of the process at the other end, or that listens there."""
    pid, user, _ = CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, user


class PortVenue(Venue):
    """A TCP port of the address where the ranks look for rank 0; the doctor's own port, never the store's."""

    generations = 2

    def __init__(self, addresses: Sequence[str], port: int) -> None:
        """`addresses` are all that the name of rank 0's host stands for: not every machine has a way to each."""
        super().__init__()
        self._addresses = tuple(addresses)
        self._port = port

    def __str__(self) -> str:
        return f"{self._addresses[0]}:{self._port}"

    @property
    def way(self) -> Literal["", "refused", "dropped", "unreachable"]:
        """How the last attempt to connect failed; a host that refuses is there."""
        if not self.failures:
            return ""
        if errno.ECONNREFUSED in self.failures:
            return "refused"
        return "dropped" if errno.ETIMEDOUT in self.failures else "unreachable"

    def _names(self, generation: int) -> list[Name]:
        port = self._port + generation
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, (address, port)) for address in self._addresses]

    def _bind(self, generation: int) -> socket.socket:
        """On the address; on all of this machine where it has one of several, as torch's store does."""
        names = self._names(generation)
        if len(names) == 1:
            return bound(*names[0])
        refusal: OSError | None = None
        for family, address in names:
            try:
                bound(family, (address[0], 0)).close()
            except OSError as error:
                refusal = error
                continue
            try:
                return bound(socket.AF_INET6, ("::", self._port + generation))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
                return bound(family, address)
        raise refusal or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


def bound(family: int, address: str | tuple[str, int]) -> socket.socket:
    """A socket that is bound there, for both families where that is the IPv6 wildcard."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
