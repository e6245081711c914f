"""A meeting through a folder that all hosts see, where they have no way to each other over the network.

Whoever creates `host-N` hosts; a guest says hello and is welcomed. Each direction of a conversation is a row of numbered
files, written under another name and renamed, and removed by who has read them: what is unread is bounded, and nothing
stays. The ends of a conversation are sockets here, so that a meeting is the same whatever carries it.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

TICK_SECONDS = 0.1
PIECE = 1 << 20
MOST_UNREAD = 32
"""Pieces that one side writes ahead of the other."""
MOST_NAMES = 100_000
ANSWER_SECONDS = 4.0
"""A host that welcomes nobody for so long is gone; file systems of a network show a new file a second or two late."""
FAREWELL_SECONDS = 3.0
GENERATIONS = 8
_NAME = re.compile(r"(?:host-[0-9]|([0-9a-f]{12})\.(?:hello|welcome)|([0-9a-f]{12})-([hg])-([0-9]{1,9}))(?:\.new)?")


class Folder:
    """One job's place in a shared folder."""

    def __init__(self, share: Path, name: str) -> None:
        """`share` has to exist; the job's own folder in it is made here, and removed by the last who leaves."""
        self._share = share
        self._place = share / f".ddp-doctor-{name[:16]}"
        self._pump: _Pump | None = None
        self._trouble = ""
        self._broke: OSError | None = None

    @property
    def trouble(self) -> str:
        """Why there is no way through the folder, or not for everybody; empty while nothing is known."""
        if self._trouble:
            return self._trouble
        error = (self._pump.error if self._pump is not None else None) or self._broke
        return f"{self._share}: {error.strerror or error}" if error is not None else ""

    def __str__(self) -> str:
        return str(self._share)

    def join(self, claim: bool) -> socket.socket | None:
        """The end of a conversation with who hosts here. None where nobody does, or, after a `claim`, this process.

        May block. After a claim that held, `listener` is where guests arrive. What was joined before is given up.
        """
        self._give_up()
        try:
            self._place.mkdir(mode=0o700, exist_ok=True)
            if not _is_ours(self._place):
                self._trouble = f"{self._place} belongs to somebody else"
                return None
            generation = max(_generations(_names(self._place)), default=-1)
            found = _knock(self._place) if generation >= 0 else None
            if found is not None:
                self._pump, self._trouble = found, ""
                return found.near
            if claim and generation + 1 < GENERATIONS:
                _create(self._place / f"host-{generation + 1}")
                self._pump = _Pump(self._place, None)
            self._trouble = ""  # not before: it may be asked for during a further try
            return None
        except FileExistsError:
            return None  # somebody else was faster
        except OSError as error:
            self._trouble = f"{self._share}: {error.strerror or error}"
            return None

    @property
    def listener(self) -> socket.socket | None:
        """Where guests arrive, for who hosts here."""
        return self._pump.listener if self._pump is not None else None

    @property
    def guests(self) -> int:
        """How many have come to who hosts here."""
        return self._pump.guests if self._pump is not None else 0

    def close(self) -> None:
        """See that what was said is read, for some seconds at most, and remove what is left. The near ends must be closed."""
        self._give_up()
        try:
            self._place.rmdir()
        except OSError:
            pass  # others are still in it, or it never was

    def _give_up(self) -> None:
        if self._pump is not None:
            self._pump.close()
            self._broke = self._pump.error or self._broke  # whoever knocks again meets the same full disk
            self._pump = None


class _Side:
    """One conversation, seen from here: bytes from files into a socket, and back."""

    def __init__(self, place: Path, guest: str, mine: str, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._place, self.guest, self._mine, self._sock = place, guest, mine, sock
        self._theirs = "g" if mine == "h" else "h"
        self._read = self._written = 0
        self._unsent = b""
        self._over = self._told = False

    @property
    def told(self) -> bool:
        """Whether all that was said here is in files."""
        return self._told

    def turn(self, rows: dict[str, set[int]]) -> None:
        """Take what has come, and write what is to go; `rows` are the numbers of the files there are."""
        theirs, mine = rows[f"{self.guest}-{self._theirs}"], rows[f"{self.guest}-{self._mine}"]
        self._send()
        while not self._unsent and not self._over and self._read in theirs:
            path = self._file(self._theirs, self._read)
            self._unsent = _content(path)
            path.unlink(missing_ok=True)
            self._read += 1
            if not self._unsent:
                self._over = True
                self._shut()
            self._send()
        while not self._told and len(mine) < MOST_UNREAD:
            data = self._receive()
            if data is None:
                break
            _create(self._file(self._mine, self._written), data)
            mine.add(self._written)
            self._written += 1
            self._told = not data

    def close(self) -> None:
        self._sock.close()

    def _send(self) -> None:
        while self._unsent:
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except BlockingIOError:
                return
            except OSError:
                self._unsent, self._over = b"", True

    def _receive(self) -> bytes | None:
        """What the near end has said by now; None for nothing, empty for its end."""
        said = b""
        while len(said) < PIECE:
            try:
                data = self._sock.recv(PIECE - len(said))
            except BlockingIOError:
                return said or None
            except OSError:
                return said
            if not data:
                return said
            said += data
        return said

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _file(self, side: str, number: int) -> Path:
        return self._place / f"{self.guest}-{side}-{number}"


class _Pump:
    """The thread that carries conversations; of one guest, or, without `guest`, of all who come to this host."""

    def __init__(self, place: Path, guest: str | None) -> None:
        self._place, self._guest = place, guest
        self._over_at: float | None = None
        self._sides: dict[str, _Side] = {}
        self._broken: set[str] = set()
        self.error: OSError | None = None
        """What went wrong last, with the folder or with one conversation."""
        self.listener: socket.socket | None = None
        self.near: socket.socket | None = None
        if guest is None:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self.listener.bind("")  # the kernel chooses an abstract name
            self.listener.listen(MOST_UNREAD)
            self.listener.setblocking(False)
            self._name = self.listener.getsockname()
        else:
            self.near, far = socket.socketpair()
            self._sides[guest] = _Side(place, guest, "g", far)
        self._thread = threading.Thread(target=self._run, name="ddp-doctor shared folder", daemon=True)
        self._thread.start()

    @property
    def guests(self) -> int:
        """How many have come; none to one that is a guest itself."""
        return len(self._sides) if self._guest is None else 0

    def close(self) -> None:
        """Wait until what was said is read, for some seconds at most; then all of this side is gone."""
        self._over_at = time.monotonic()
        self._thread.join(FAREWELL_SECONDS + 1.0)

    def _run(self) -> None:
        try:
            while not self._turn():
                time.sleep(TICK_SECONDS)
        except OSError as error:
            self.error = error  # the folder is gone: the other side falls silent, which both notice
        finally:
            for side in self._sides.values():
                side.close()
            self._remove()

    def _turn(self) -> bool:
        """One look at the folder; True once there is nothing left to do."""
        names = _names(self._place)
        rows: dict[str, set[int]] = defaultdict(set)
        for name in names:
            found = _NAME.fullmatch(name)
            if found and found[2] and not name.endswith(".new"):
                rows[f"{found[2]}-{found[3]}"].add(int(found[4]))
        if self._guest is None and self._over_at is None:
            for name in names:
                if name.endswith(".hello") and _NAME.fullmatch(name):
                    guest = name.partition(".")[0]
                    self._alone(guest, partial(self._welcome, guest))
        for guest, side in list(self._sides.items()):
            self._alone(guest, partial(side.turn, rows))
        if self._over_at is None:
            return False
        unread = any(rows[f"{guest}-{'h' if self._guest is None else 'g'}"] for guest in self._sides)
        told = all(side.told for side in self._sides.values())
        return (told and not unread) or time.monotonic() - self._over_at > FAREWELL_SECONDS

    def _alone(self, guest: str, step: Callable[[], None]) -> None:
        """One step of one conversation; where the folder refuses it that one ends, and the others go on."""
        if guest in self._broken:
            return
        try:
            step()
        except OSError as error:
            self.error = error
            self._broken.add(guest)
            if (side := self._sides.pop(guest, None)) is not None:
                side.close()

    def _welcome(self, guest: str) -> None:
        if guest not in self._sides:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            sock.setblocking(False)
            if sock.connect_ex(self._name):
                sock.close()
                return  # the meeting has not taken those before; again at the next turn
            self._sides[guest] = _Side(self._place, guest, "h", sock)
        _create(self._place / f"{guest}.welcome")
        (self._place / f"{guest}.hello").unlink(missing_ok=True)

    def _remove(self) -> None:
        """Remove what this side answers for; the host what was left by those who ended without a farewell, too."""
        try:
            names = _names(self._place)
        except OSError:
            return  # it is gone
        for name in names:
            found = _NAME.fullmatch(name)
            if found and (self._guest is None or self._guest in (found[1], found[2])):
                try:
                    (self._place / name).unlink(missing_ok=True)
                except OSError:
                    pass  # somebody's folder under such a name: it is not ours


def _knock(place: Path) -> _Pump | None:
    """A conversation with who hosts here; None where nobody answers."""
    guest = secrets.token_hex(6)
    hello, welcome = place / f"{guest}.hello", place / f"{guest}.welcome"
    _create(hello)
    give_up = time.monotonic() + ANSWER_SECONDS
    try:
        while time.monotonic() < give_up:
            if welcome.name in _names(place):
                return _Pump(place, guest)
            time.sleep(TICK_SECONDS)
        return None
    finally:
        for path in (hello, welcome):
            path.unlink(missing_ok=True)


def _create(path: Path, data: bytes = b"") -> None:
    """Make a file that is there whole or not at all; one of a host only where there is none. Raises OSError."""
    if path.name.startswith("host-"):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)  # of one that was killed between the two steps
    with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
    unfinished.rename(path)


def _content(path: Path) -> bytes:
    """The bytes of a piece, empty for the last and for what is none."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return b""
        data = file.read(PIECE + 1)
    return data if len(data) <= PIECE else b""


def _names(place: Path) -> list[str]:
    with os.scandir(place) as entries:
        return [entry.name for entry, _ in zip(entries, range(MOST_NAMES), strict=False)]


def _generations(names: Iterable[str]) -> list[int]:
    return [int(name[5:]) for name in names if re.fullmatch(r"host-[0-9]", name)]


def _is_ours(place: Path) -> bool:
    """Whether it is a folder into which nobody else writes; a server may show root's as nobody's."""
    found = place.lstat()
    own = found.st_uid == os.geteuid() or os.geteuid() == 0
    return stat.S_ISDIR(found.st_mode) and own and not stat.S_IMODE(found.st_mode) & 0o022
