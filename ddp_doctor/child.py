"""Worker processes that can be killed at any moment: own session, one channel each, nothing else inherited."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_doctor.deadline import Deadline

WORKERS = Path(__file__).parent / "workers"
MOST_MESSAGES = 10_000
MOST_BYTES = 1 << 20
MOST_MESSAGE = 256 << 20
MOST_PRINTED = 16 << 20
SECONDS_TO_DIE = 0.5


def readable(channels: Sequence[Any], seconds: float) -> list[Any]:
    """Those that have something to hear within so many seconds.

    Not select(): that refuses descriptors above 1023, and training processes and hosts of many ranks have such.
    """
    poll = select.poll()
    by_number = {channel.fileno(): channel for channel in channels}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(math.ceil(1000 * seconds))]


class Silence(Exception):
    """The worker said nothing until the deadline."""


class Conversation:
    """The doctor's end of one channel, and the memory file with what the process at the other end prints."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._printed = os.memfd_create(f"ddp-doctor {worker}", os.MFD_CLOEXEC)
        self.sender: int | None = None
        """The PID of the process that sent the last message, None before the first."""
        self._messages = 0
        self._pieces: dict[bytes, bytes] = {}

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; a worker that is already gone shows at the next `receive`."""
        try:
            self._channel.sendall(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            pass

    def fileno(self) -> int:
        """The channel's descriptor, so that one thread can wait for several workers."""
        return self._channel.fileno()

    def receive(self, deadline: Deadline) -> dict[str, Any] | None:
        """The next message, None when the worker closed the channel; raises Silence at the deadline.

        What does not decode to an object (a corrupt worker) is skipped.
        """
        while True:
            if not readable([self._channel], deadline.remaining()):
                raise Silence(self.worker)
            try:
                data = self._channel.recv(MOST_BYTES)
            except ConnectionResetError:
                return None
            self._messages += 1
            if not data or self._messages > MOST_MESSAGES:
                return None
            sender, _, piece = data.partition(b" ")
            if sender[1:].isdigit():
                self.sender = int(sender[1:])
            whole = self._pieces.pop(sender[1:], b"") + piece
            if sender.startswith(b"+") and len(whole) <= MOST_MESSAGE:
                self._pieces[sender[1:]] = whole
                continue
            try:
                message = json.loads(whole)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message

    def messages(self, deadline: Deadline) -> Iterator[dict[str, Any]]:
        """Every further message until the channel closes; raises Silence at the deadline."""
        while (message := self.receive(deadline)) is not None:
            yield message

    def printed(self) -> str:
        """What the worker and the libraries in it wrote to stdout and stderr; of more than 16 MiB the end."""
        size = os.fstat(self._printed).st_size
        return os.pread(self._printed, MOST_PRINTED, max(0, size - MOST_PRINTED)).decode("utf-8", "replace")

    def printed_after(self, place: int) -> bytes:
        """The whole lines written from that byte on, 16 MiB at most; empty while there is none."""
        if os.fstat(self._printed).st_size <= place:
            return b""
        data = os.pread(self._printed, MOST_PRINTED, place)
        return data[: data.rfind(b"\n") + 1] if len(data) < MOST_PRINTED else data

    def _close(self) -> None:
        self._channel.close()
        self._theirs.close()
        if self._printed >= 0:
            os.close(self._printed)
            self._printed = -1


class Child(Conversation):
    """A running worker. Start it from a thread that outlives it: the kernel kills it when that thread ends.

    Given `forks`, requests of their own, it is that many processes from one start of the interpreter, in one session.
    """

    def __init__(
        self,
        python: Sequence[str],
        worker: str,
        request: Mapping[str, Any],
        environ: Mapping[str, str],
        cwd: str | None = None,
        forks: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(worker)
        self.forks = [Fork(self) for _ in forks]
        ends = [end for fork in self.forks for end in fork.ends]
        if forks:
            given = zip(forks, self.forks, strict=True)
            request = {"forks": [{**each, "channel": fork.ends[0], "printed": fork.ends[1]} for each, fork in given]}
        try:
            self._process = subprocess.Popen(
                [
                    *python,
                    str(WORKERS / "guard.py"),
                    str(WORKERS / f"{worker}.py"),
                    str(self._theirs.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(self._theirs.fileno(), *ends),
                env=dict(environ),
                cwd=cwd,
                start_new_session=True,
            )
            for conversation in (self, *self.forks):
                conversation._theirs.close()
            self.send(request)
        except BaseException:
            self._close()
            raise
        self.pid = self._process.pid

    def exit_code(self, seconds: float = SECONDS_TO_DIE) -> int | None:
        """The exit code (negative for a signal) once it has ended within that time, else None."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the whole session: ranks that the worker forked go in the same moment as the worker."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def end(self) -> tuple[int, ...]:
        """Kill and reap, then return the PIDs that did not die (uninterruptible)."""
        self.kill()
        self.exit_code()
        alive = survivors(self.pid)
        give_up = time.monotonic() + SECONDS_TO_DIE
        while alive and time.monotonic() < give_up:
            time.sleep(0.01)
            alive = survivors(self.pid)
        self._close()
        return alive

    def _close(self) -> None:
        super()._close()
        for fork in self.forks:
            fork._close()


class Fork(Conversation):
    """One of the processes of a worker that was asked for several."""

    def __init__(self, child: Child) -> None:
        super().__init__(child.worker)
        self._child = child
        self.ends = (self._theirs.fileno(), self._printed)
        """The descriptors that the process inherits: its channel, and the file for what it prints."""
        self._code: int | None = None

    def printed(self) -> str:
        """What was printed before the fork, and what this process printed."""
        return self._child.printed() + super().printed()

    def exit_code(self, seconds: float = SECONDS_TO_DIE) -> int | None:
        """The exit code (negative for a signal) once it has ended within that time, else None."""
        deadline = Deadline(seconds)
        while self._code is None:
            try:
                ended = self._child.receive(deadline)
            except Silence:
                return None
            if ended is None:
                return self._child.exit_code(deadline.remaining())
            self._child.forks[ended["fork"]]._code = ended["code"]
        return self._code


def how_it_ended(code: int | None) -> str:
    """What became of a worker, to follow its name; None is one that closed its channel and did not end."""
    if code is None:
        return "closed its channel and went on"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"


def survivors(group: int) -> tuple[int, ...]:
    """PIDs of a process group that are neither gone nor zombies."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return ()
    except PermissionError:
        pass
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue
        state, _, process_group = stat.rsplit(b")", 1)[1].split()[:3]
        if int(process_group) == group and state not in (b"Z", b"X"):
            found.append(int(entry))
    return tuple(found)
