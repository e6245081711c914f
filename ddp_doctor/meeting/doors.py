"""A machine's own listeners, on ports that the kernel chooses, which tell each caller who answers and whom they see."""

from __future__ import annotations

import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec

GREETING = "ddp-doctor path"
BACKLOG = 1024
TICK = 0.1
KEEP_SECONDS = 3.0
"""A caller hangs up first; one that does not is hung up on."""
TCP_INFO_QUEUE = struct.Struct("=24x2I")
"""Of `struct tcp_info` for a listener: how many connections wait to be accepted, and how many may."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An address of this machine that others have to reach, and what for. A `port` of 0 lets the kernel choose."""

    address: str
    uses: tuple[str, ...]
    interface: str = ""
    port: int = 0


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """A listener as the other machines hear of it. `nonce` is what it says to whoever connects."""

    address: str
    port: int
    uses: tuple[str, ...]
    nonce: str
    interface: str = ""


class Doors:
    """Open from the first call of `open` until `close`. A thread answers."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners: list[tuple[socket.socket, Door]] = []
        self._counts: dict[str, list[int]] = {}
        self._callers: dict[socket.socket, float] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, places: Sequence[Place]) -> tuple[Door, ...]:
        """Listen on each of these places that can be bound here; those that could."""
        before = len(self._listeners)
        for place in places:
            family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                if place.port:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((place.address, place.port))
                sock.listen(BACKLOG)
            except OSError:
                sock.close()  # not an address of this machine, or a port that the job itself holds
                continue
            port = sock.getsockname()[1]
            nonce = secrets.token_hex(12)
            door = Door(address=place.address, port=port, uses=place.uses, nonce=nonce, interface=place.interface)
            self._listeners.append((sock, door))
            self._counts[nonce] = [0, 0, 0]
            self._selector.register(sock, selectors.EVENT_READ, door)
        if self._listeners and self._thread is None:
            self._thread = threading.Thread(target=self._answer, name="ddp-doctor listeners", daemon=True)
            self._thread.start()
        return self.all[before:]

    @property
    def all(self) -> tuple[Door, ...]:
        """Those that are open."""
        return tuple(door for _, door in self._listeners)

    def seen(self, host: str) -> list[dict[str, Any]]:
        """What each has seen so far, as tables of PathListener."""
        return [
            {
                "kind": "PathListener",
                "subject": {"host": host},
                "source": f"listener of ddp-doctor on {door.address}:{door.port}",
                "address": door.address,
                "port": door.port,
                "uses": list(door.uses),
                "interface": door.interface,
                "backlog": self._counts[door.nonce][0],
                "queued": self._counts[door.nonce][1],
                "accepted": self._counts[door.nonce][2],
            }
            for door in self.all
        ]

    def close(self) -> None:
        """Stop listening."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(1.0)
        for sock in (*self._callers, *(sock for sock, _ in self._listeners)):
            sock.close()
        self._listeners.clear()
        self._selector.close()

    def _answer(self) -> None:
        while not self._over.is_set():
            for listener, door in self._listeners:
                waiting, most = TCP_INFO_QUEUE.unpack(listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32))
                counts = self._counts[door.nonce]
                counts[0], counts[1] = most, max(counts[1], waiting)
            for entry, _ in self._selector.select(TICK):
                assert isinstance(entry.fileobj, socket.socket)
                sock = entry.fileobj
                if entry.data is None:
                    self._hang_up(sock)
                else:
                    self._greet(sock, entry.data)
            now = time.monotonic()
            for sock in [sock for sock, since in self._callers.items() if now - since > KEEP_SECONDS]:
                self._hang_up(sock)

    def _greet(self, listener: socket.socket, door: Door) -> None:
        try:
            sock, peer = listener.accept()
        except OSError:
            return
        self._counts[door.nonce][2] += 1
        sock.setblocking(False)
        try:
            sock.send(f"{GREETING} {door.nonce} {bare(peer[0])}\n".encode())
        except OSError:
            sock.close()
            return
        self._callers[sock] = time.monotonic()
        self._selector.register(sock, selectors.EVENT_READ, None)

    def _hang_up(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        del self._callers[sock]
        sock.close()


def bare(address: str) -> str:
    """An address without its scope, and IPv4 in its own notation."""
    return address.partition("%")[0].removeprefix("::ffff:")
