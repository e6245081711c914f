"""Attend the meeting of one's job: as its host where nobody else is, else as a guest, and again where a host is lost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import msgspec

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.meeting.folder import Folder
from ddp_doctor.meeting.hosting import Hosting, Work
from ddp_doctor.meeting.identity import Identity
from ddp_doctor.meeting.member import silence, take_part
from ddp_doctor.meeting.messages import VERSION, Came, Pulse, Verdict
from ddp_doctor.meeting.terms import OF_A_JOB, Terms
from ddp_doctor.meeting.upstream import Upstream
from ddp_doctor.meeting.venue import LocalVenue, PortVenue

RESERVE = 0.1
"""The share of its time that a host keeps for the judgement, so that all hear it in theirs."""
MOST_RESERVE_SECONDS = 2.0
SECONDS_PER_RANK = 0.1
"""What more than one rank per processor takes to hear it."""
LATE_SECONDS = 1.5
"""How much longer than its own time a guest waits for the verdict."""
STRANGE_SECONDS = 2.0
"""After so long a name that is taken and does not answer is passed over."""


class Attended(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: the verdict, or without one the last that was known about who is here."""

    verdict: Verdict | None = None
    pulse: Pulse | None = None
    reason: str = ""


def attend(
    me: Attendee,
    identity: Identity,
    work: Work,
    find: Callable[[], PortVenue | None],
    started: float,
    end: float,
    terms: Terms = OF_A_JOB,
) -> Attended:
    """Meet the other ranks from `started` until `end`, in monotonic time. `find` looks up where hosts meet, and may block.

    Where `terms` say that the probes take longer, the verdict comes that much later.
    """
    venue = LocalVenue(identity.here)
    lost: Attendee | None = None
    seconds = end - started
    crowd = (me.local_world_size or me.world_size or 1) / (os.cpu_count() or 1)
    reserve = min(MOST_RESERVE_SECONDS, RESERVE * seconds) + (SECONDS_PER_RANK * crowd if crowd > 1 else 0.0)
    host_end = end - min(reserve, seconds / 4)
    first, refused_since = 0, 0.0
    pulse: Pulse | None = None
    reason = ""
    while time.monotonic() < end and not (terms.stopped() and pulse is not None):
        found = venue.connect(range(first, venue.generations), 1.0)
        if found is not None:
            came = Came(VERSION, identity.here, me, lost)
            sock = found[0]
            give_up = end + terms.observed_s + LATE_SECONDS
            heard = take_part(sock, came, give_up, silence(seconds), lambda: venue.runs(sock), terms)  # noqa: B023
            lost = heard.host or lost
            pulse, reason = heard.pulse or pulse, heard.reason or heard.how
            if heard.verdict is not None:
                return Attended(verdict=heard.verdict, pulse=pulse)
            if heard.how in ("late", "refused"):
                break
            if heard.how == "silent":
                first = min(found[1] + 1, venue.generations - 1)
            continue
        listener = venue.listen(first)
        if listener is None:
            # bound by somebody who is about to listen, or held by one who does not answer
            now = time.monotonic()
            refused_since = refused_since or now
            if now - refused_since > STRANGE_SECONDS:
                first, refused_since = min(first + 1, venue.generations - 1), now
            time.sleep(random.uniform(0.005, 0.02))
            continue
        folder = Folder(terms.share, identity.everywhere) if terms.share is not None else None
        upstream = Upstream(find, folder)
        hosting = Hosting(listener, venue, first, me, identity, work, upstream, started, host_end, lost, terms)
        verdict = hosting.run()
        if verdict is not None:
            return Attended(verdict=verdict)
        first = 0
    return Attended(pulse=pulse, reason=reason)
