"""DDP608: a rank is stopped by a signal or debugger."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class RankStopped(Check):
    id, name = "DDP608", "rank-stopped"
    title = "A rank is stopped by a signal or debugger"
    needs = (LogEvent,)
    acts_at = frozenset(
        {
            Stage.STORE_CONNECT,
            Stage.STORE_WAIT,
            Stage.GLOO_MESH,
            Stage.COMM_BOOTSTRAP,
            Stage.TRANSPORT,
            Stage.FIRST_COLLECTIVE,
            Stage.TRAINING,
        }
    )
    told = Told(
        because="a stopped process answers nobody; ranks that wait for it wait without an end, since its sockets stay "
        "open",
        fixes=(
            Fix(
                title="see who stopped it, and let it go on",
                commands=("grep -E 'State|TracerPid' /proc/PID/status", "kill -CONT PID"),
                needs="the owner of the process",
            ),
        ),
    )
