"""Ancestors of a command that become py-spy, for kernels where only an ancestor may look into a process.

Yama's ptrace_scope=1, Ubuntu's default, lets a process trace only its descendants. py-spy, started in the usual way, is
a cousin of the ranks. But exec keeps a process what it is: so a chain of processes lies between `watch` and the command,
each waits in its seat, and when a stack is wanted the topmost becomes py-spy. The next moves up, for its predecessor's
exec closed the pipe it waits at. The last one is the command's parent and stays to tell how it ended.

Who wants a stack runs `seated.py` in the place of py-spy (see workers/stacks.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ddp_doctor.capability import CAP_SYS_PTRACE, has_capability
from ddp_doctor.watching.tree import reap

SEATS = 64
"""Two looks at eight ranks and their launcher take 36, the search for the first rank in init 18."""
STATUS = struct.Struct("=ii")


class Seated(NamedTuple):
    """A command below seats: its PID, the descriptor that tells its wait statuses, and the PIDs of the seats from above.

    `py_spy` is what stands for py-spy; `alive` has to stay open for as long as the seats are wanted.
    """

    command: int
    statuses: int
    seats: tuple[int, ...]
    py_spy: tuple[str, ...]
    alive: int


def seats_are_needed(scope: str | None, status: str) -> bool:
    """Whether only ancestors may look into a process: Yama's scope is 1, and /proc/self/status shows no capability."""
    if (scope or "0").strip() != "1":
        return False
    return not has_capability(status, CAP_SYS_PTRACE)


def start_below_seats(start: Callable[[], int], py_spy: str, seats: int = SEATS) -> Seated:
    """Start a command below a chain of processes that can become `py_spy`; OSError where it cannot be started."""
    name = f"\0ddp-doctor seats {os.getpid()}"
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(name)
    door.listen(16)
    read, write = os.pipe()
    watched, alive = os.pipe()
    me = os.getpid()
    first = os.fork()
    if not first:
        try:
            os.close(read)
            os.close(alive)
            _Chain(door, py_spy, watched, write, me).sit(seats, start)
        finally:
            os._exit(1)
    for each in (door.detach(), write, watched):
        os.close(each)
    told = json.loads(_line(read))
    if "error" in told:
        os.close(read)
        os.close(alive)
        raise OSError(told["error"], os.strerror(told["error"]))
    proxy = (sys.executable or "python3", "-I", "-S", str(Path(__file__).with_name("seated.py")), name[1:])
    os.set_blocking(read, False)
    return Seated(told["command"], read, tuple(told["seats"]), proxy, alive)


def statuses(descriptor: int) -> Mapping[int, int]:
    """PID -> wait status, of what the command's parent has told since."""
    try:
        data = os.read(descriptor, STATUS.size * 64)
    except BlockingIOError:
        return {}
    return dict(STATUS.iter_unpack(data[: len(data) // STATUS.size * STATUS.size]))


def _line(descriptor: int) -> bytes:
    """One line, and not a byte of what follows."""
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(descriptor, 1)
        if not piece:
            return b'{"error": 11}'
        data += piece
    return data


class _Chain:
    """What a process of the chain holds: the door at which stacks are asked for, and pipes from and to the watch."""

    def __init__(self, door: socket.socket, py_spy: str, watched: int, write: int, watch: int) -> None:
        self._door = door
        self._py_spy = py_spy
        self._watched = watched
        self._write = write
        self._watch = watch

    def sit(self, seats: int, start: Callable[[], int]) -> None:
        """In the first seat: put the next one below, down to the command's parent, and wait for this seat's turn."""
        found: list[int] = []
        turn: int | None = None
        for _ in range(seats):
            found.append(os.getpid())
            waits, above = os.pipe()
            if os.fork():
                # this process keeps the end `above`; exec closes it, which makes it the turn of the seat below
                os.close(waits)
                os.close(self._write)
                self._wait_for(turn)
                self._become_py_spy()
            os.close(above)
            if turn is not None:
                os.close(turn)
            turn = waits
        self._door.close()
        self._stay([*found, os.getpid()], start)

    def _wait_for(self, descriptor: int | None) -> None:
        """Until it can be read; where the watch ended, so does this process."""
        if descriptor is not None and self._watched in select.select([descriptor, self._watched], [], [])[0]:
            os._exit(0)

    def _become_py_spy(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            self._wait_for(self._door.fileno())
            asker, _ = self._door.accept()
            user = struct.unpack("3i", asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            data, descriptors, _, _ = socket.recv_fds(asker, 1 << 16, 2)
            words = json.loads(data) if data else []
            if user != os.geteuid() or len(descriptors) != 2 or words[:1] != ["dump"]:
                asker.close()
                continue
            for standard, descriptor in zip((1, 2), descriptors, strict=True):
                os.dup2(descriptor, standard)
            # closed when py-spy ends, which tells the one who asked
            asker.set_inheritable(True)
            os.execv(self._py_spy, [self._py_spy, *words])

    def _stay(self, seats: list[int], start: Callable[[], int]) -> None:
        """Be the command's parent, and tell each change of its state to the watch, for as long as there is one."""
        try:
            command = start()
        except OSError as error:
            os.write(self._write, json.dumps({"error": error.errno}).encode() + b"\n")
            return
        os.write(self._write, json.dumps({"command": command, "seats": seats}).encode() + b"\n")
        while not select.select([self._watched], [], [], 0)[0]:
            # SIGCHLD is blocked here as it is in the watch
            signal.sigtimedwait([signal.SIGCHLD], 1.0)
            for pid, status in reap().items():
                os.write(self._write, STATUS.pack(pid, status))
                os.kill(self._watch, signal.SIGCHLD)
                if pid == command and not os.WIFSTOPPED(status):
                    os._exit(0)
        os._exit(0)
