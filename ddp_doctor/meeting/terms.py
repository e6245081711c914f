"""What a meeting does besides ending in time; `preflight` and `run` want different things of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.meeting.doors import Place
from ddp_doctor.meeting.messages import Verdict

SPEAK_SECONDS = 15.0
"""For so long the others wait for the one who speaks; its stdout may be a pipe that nobody reads."""
STOP_SECONDS = 5.0
"""For so long a rank that was told to end waits for the verdict, which its host draws at once if it was told the same."""


def _never() -> bool:
    return False


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a meeting is held. The defaults are those of a job that wants to go on."""

    observed_s: float = 0.5
    """How much longer than for the ranks a host waits for what probes bring."""
    observe_after_s: float = 0.5
    """Seconds after which a machine is looked at, whichever of its ranks have come by then."""
    thorough: bool = False
    """Whether the verdict waits for the probes of every machine, and a machine is looked at once, whoever comes later."""
    speak: Callable[[Verdict], None] | None = None
    """What the rank does that speaks for all; nobody ends before it has returned. None: every rank ends at the verdict."""
    missed: Callable[[tuple[int, ...]], None] | None = None
    """Told which ranks have not come when the time is over, where probes still keep the verdict."""
    survey: Callable[[Attendee], tuple[Place, ...]] | None = None
    """Where this machine listens in the job, as its first rank sees it; may block. None: paths are not tried."""
    share: Path | None = None
    """A folder through which hosts meet that have no way to each other over the network."""
    stopped: Callable[[], bool] = _never
    """Whether this process was told to end: the verdict is then drawn from what is there."""


OF_A_JOB = Terms()
"""Those of a job that is about to start."""
