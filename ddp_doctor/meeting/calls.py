"""Connections to the listeners of other machines, all at once, each with what became of it."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ddp_doctor.meeting.doors import GREETING, Door, bare

SECONDS = 3.3
"""The kernel repeats a connect after one second and after three: what is lost by chance is not dropped three times."""
AT_ONCE = 256
LONGEST_GREETING = 256
RESET = struct.pack("ii", 1, 0)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A listener of another host."""

    host: str
    door: Door


class _Call(msgspec.Struct, kw_only=True):
    target: Target
    sock: socket.socket | None = None
    began: float = 0.0
    connected: bool = False
    heard: bytes = b""
    outcome: str = ""
    error: int = 0
    local: str = ""
    own: bool = False
    seen_as: str = ""
    answered_by: str = ""
    seconds: float = 0.0


def call(
    targets: Sequence[Target], known: Mapping[str, str], host: str, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """Try these, as tables of PathTry from `host`. `known` are the hosts by the nonces of their listeners."""
    tables = []
    for first in range(0, len(targets), AT_ONCE):
        calls = [_Call(target=target) for target in targets[first : first + AT_ONCE]]
        _try(calls, known, seconds)
        tables += [_table(each, host) for each in calls]
    return tables


def _try(calls: list[_Call], known: Mapping[str, str], seconds: float) -> None:
    poll = select.poll()
    open_calls: dict[int, _Call] = {}
    for each in calls:
        _begin(each)
        if each.sock is not None:
            open_calls[each.sock.fileno()] = each
            poll.register(each.sock, select.POLLOUT)
    give_up = time.monotonic() + seconds
    while open_calls and (left := give_up - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left):
            each = open_calls[number]
            assert each.sock is not None
            _go_on(each, known)
            if each.outcome:
                poll.unregister(number)
                del open_calls[number]
                _end(each)
            elif each.connected:
                poll.modify(number, select.POLLIN)
    for each in open_calls.values():
        each.outcome = "silent" if each.connected else "dropped"
        _end(each)


def _begin(each: _Call) -> None:
    door = each.target.door
    family = socket.AF_INET6 if ":" in door.address else socket.AF_INET
    each.began = time.monotonic()
    try:
        each.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    except OSError as failure:
        _fail(each, failure.errno or errno.EAFNOSUPPORT)
        return
    if _is_own(family, door.address):
        each.outcome, each.own = "wrong-host", True
        _end(each)
        return
    code = each.sock.connect_ex((door.address, door.port))
    if code not in (0, errno.EINPROGRESS):
        _fail(each, code)
        _end(each)


def _is_own(family: int, address: str) -> bool:
    """Whether this machine has the address itself: the kernel then takes it as the source too. Nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect((address, 9))
        except OSError:
            return False
        return bare(sock.getsockname()[0]) == bare(address)


def _go_on(each: _Call, known: Mapping[str, str]) -> None:
    assert each.sock is not None
    if not each.connected:
        code = each.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            _fail(each, code)
            return
        each.connected = True
        each.local = bare(each.sock.getsockname()[0])
        return
    try:
        data = each.sock.recv(LONGEST_GREETING)
    except BlockingIOError:
        return
    except OSError as failure:
        _fail(each, failure.errno or errno.ECONNRESET)
        return
    each.heard += data
    if data and b"\n" not in each.heard and len(each.heard) < LONGEST_GREETING:
        return
    words = each.heard.decode("ascii", "replace").split()
    nonce, seen = (words[2], words[3]) if len(words) == 4 and " ".join(words[:2]) == GREETING else ("", "")
    if nonce == each.target.door.nonce:
        each.outcome, each.seen_as = "reached", seen
    else:
        each.outcome, each.answered_by = "wrong-host", known.get(nonce, "")


def _fail(each: _Call, code: int) -> None:
    each.error = code
    each.outcome = (
        "refused"
        if code in (errno.ECONNREFUSED, errno.ECONNRESET)
        else "dropped"
        if code == errno.ETIMEDOUT
        else "unreachable"
    )


def _end(each: _Call) -> None:
    each.seconds = round(time.monotonic() - each.began, 2)
    if each.sock is not None:
        if each.connected:
            # no TIME_WAIT stays behind on either side
            each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        each.sock.close()
        each.sock = None


def _table(each: _Call, host: str) -> dict[str, Any]:
    door = each.target.door
    return {
        "kind": "PathTry",
        "subject": {"host": host},
        "source": f"connect from {host}",
        "to": each.target.host,
        "address": door.address,
        "port": door.port,
        "uses": list(door.uses),
        "outcome": each.outcome,
        "error": os.strerror(each.error) if each.error else "",
        "errno": each.error or None,
        "seconds": each.seconds,
        "local": each.local,
        "seen_as": each.seen_as,
        "own": each.own,
        "answered_by": each.answered_by,
    }
