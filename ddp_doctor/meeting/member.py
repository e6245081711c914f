"""A rank at somebody else's meeting: it says who it is, and waits for the verdict."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.meeting.connection import Connection
from ddp_doctor.meeting.messages import MOST_HEARD, Came, Leave, Over, Pulse, Refused, Spoken, Verdict, Welcome
from ddp_doctor.meeting.terms import OF_A_JOB, SPEAK_SECONDS, STOP_SECONDS, Terms

MOST_SILENCE_SECONDS = 4.0
LEAST_SILENCE_SECONDS = 1.5
"""A host tells that it lives twice a second; one that says nothing for so long is taken for stopped."""


def silence(seconds: float) -> float:
    """For how long a host may say nothing in a meeting that has so many seconds."""
    return min(MOST_SILENCE_SECONDS, max(LEAST_SILENCE_SECONDS, seconds / 6))


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended, and the last that the host said about who is here."""

    how: Literal["verdict", "closed", "silent", "refused", "late"]
    verdict: Verdict | None = None
    pulse: Pulse | None = None
    reason: str = ""
    host: Attendee | None = None


def take_part(
    sock: socket.socket,
    came: Came,
    give_up: float,
    patience: float,
    runs: Callable[[], bool | None],
    terms: Terms = OF_A_JOB,
) -> Heard:
    """Wait for the verdict until `give_up`, in monotonic time.

    A host that is silent for `patience` seconds is given up, except where its process `runs`: then this machine is slow.
    """
    connection = Connection(sock, MOST_HEARD)
    connection.send(came)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    heard_at = time.monotonic()
    pulse: Pulse | None = None
    host: Attendee | None = None
    verdict: Verdict | None = None
    told_to_end = False
    try:
        while True:
            now = time.monotonic()
            if now >= give_up:
                return Heard(how="late" if verdict is None else "verdict", verdict=verdict, pulse=pulse)
            if terms.stopped() and not told_to_end:
                told_to_end, give_up = True, min(give_up, now + STOP_SECONDS)
            if verdict is None and now - heard_at > patience and not runs():
                return Heard(how="silent", pulse=pulse, host=host)
            poll.modify(connection, select.POLLIN | (select.POLLOUT if connection.unsent else 0))
            if poll.poll(1000 * min(0.5, give_up - now)):
                connection.flush()
                for message in connection.receive():
                    heard_at = time.monotonic()
                    if isinstance(message, Verdict):
                        if terms.speak is None:
                            return Heard(how="verdict", verdict=message, pulse=pulse)
                        verdict, give_up = message, time.monotonic() + SPEAK_SECONDS
                        if message.speaker == came.attendee.key:
                            terms.speak(message)
                            connection.send(Spoken())
                    if isinstance(message, Spoken) and verdict is not None:
                        return Heard(how="verdict", verdict=verdict, pulse=pulse)
                    if isinstance(message, Pulse):
                        pulse = message
                    elif isinstance(message, Welcome):
                        host = message.host
                    elif isinstance(message, Over):
                        return Heard(how="closed", pulse=pulse)
                    elif isinstance(message, Refused):
                        return Heard(how="refused", pulse=pulse, reason=message.reason)
            if connection.closed and verdict is not None:
                return Heard(how="verdict", verdict=verdict, pulse=pulse)
            if connection.closed:
                return Heard(how="closed", pulse=pulse, reason=connection.closed, host=host)
    finally:
        # who goes on elsewhere must not be taken for one whose process died
        connection.send(Leave())
        connection.close()
