"""DDP604: one rank is busy longer than the others wait."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class SlowRank(Check):
    id, name = "DDP604", "slow-rank"
    title = "One rank is busy longer than the others wait"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.PYTHON, Stage.STORE_WAIT, Stage.COMM_BOOTSTRAP, Stage.FIRST_COLLECTIVE, Stage.TRAINING})
    residual = True
    told = Told(
        because="one rank is still busy, with data or a download, while the others wait in a collective until it times "
        "out",
        fixes=(
            Fix(
                title="prepare the data before the group exists, or allow more time where the group is made",
                commands=("dist.init_process_group(timeout=datetime.timedelta(hours=2))",),
                needs="code change, job restart",
            ),
            Fix(title="see what the late rank does", commands=("ddp-doctor attach PID",), needs="nothing"),
        ),
    )
