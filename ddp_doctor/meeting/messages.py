"""What is said at a meeting: bounded msgpack messages of known shape, each behind its length."""

from __future__ import annotations

from typing import Any

import msgspec

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.meeting.calls import Target
from ddp_doctor.meeting.doors import Door

VERSION = 2
LENGTH_BYTES = 4
MOST_SAID = 1 << 20
"""Bytes of the longest message a host accepts; what a rank says of itself takes about 2 KiB."""
MOST_HEARD = 64 << 20
"""Bytes of the longest message a member accepts: the verdict."""

Key = tuple[str, int | None, int | None, int | None]


class Came(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A rank is here. `token` names the job; `lost` is the rank at whose meeting it was before, and that is gone or silent."""

    version: int
    token: str
    attendee: Attendee
    lost: Attendee | None = None


class Saw(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """What the probes of one host brought, as tables."""

    host: str
    tables: list[dict[str, Any]]


class Went(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """A rank that had come is no longer here."""

    key: Key
    how: str
    stayed_s: float


class Pulse(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """The host lives: how many ranks are here, of how many, and the first that are missing."""

    present: int
    expected: int
    missing: tuple[int, ...] = ()


class Verdict(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """The end: the judgement, and which of those present speaks for all."""

    judgement: bytes
    speaker: Key


class Leave(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """A member goes of its own accord."""


class Refused(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """The host does not take what it was told."""

    reason: str


class Welcome(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """Who the host is, so that a guest can say whom it lost."""

    host: Attendee


class Over(msgspec.Struct, frozen=True, tag=9, array_like=True):
    """This meeting has ended in good order, and not for who hears this."""


class Spoken(msgspec.Struct, frozen=True, tag=10, array_like=True):
    """The rank that speaks for all has done so: everybody may end."""


class Alive(msgspec.Struct, frozen=True, tag=11, array_like=True):
    """A machine lives, told by the host of its ranks, and which of them are stopped (state T)."""

    machine: str
    stopped: tuple[Key, ...] = ()


class Listens(msgspec.Struct, frozen=True, tag=12, array_like=True):
    """The listeners of a machine, open until the verdict; `rank` is the lowest of its ranks."""

    machine: str
    host: str
    rank: int
    doors: tuple[Door, ...]


class Tries(msgspec.Struct, frozen=True, tag=13, array_like=True):
    """What a machine has to try to reach. `known` are the hosts by the nonces of their listeners."""

    turn: int
    targets: tuple[Target, ...]
    known: dict[str, str]


class Tried(msgspec.Struct, frozen=True, tag=14, array_like=True):
    """What came of it, as tables: what was tried, and what this machine's own listeners have seen."""

    turn: int
    machine: str
    tried: list[dict[str, Any]]
    seen: list[dict[str, Any]]


Message = (
    Came | Saw | Went | Pulse | Verdict | Leave | Refused | Welcome | Over | Spoken | Alive | Listens | Tries | Tried
)
_DECODER = msgspec.msgpack.Decoder(Message)
_ENCODER = msgspec.msgpack.Encoder()


def framed(message: Message) -> bytes:
    """The message behind its length."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def unframed(data: bytes) -> Message:
    """The message; raises ValueError for what is none of this version."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
