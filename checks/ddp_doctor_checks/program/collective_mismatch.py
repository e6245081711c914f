"""DDP603: the ranks call different collectives or sizes."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class CollectiveMismatch(Check):
    id, name = "DDP603", "collective-mismatch"
    title = "The ranks call different collectives or sizes"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.FIRST_COLLECTIVE, Stage.DDP_VERIFY, Stage.TRAINING})
    told = Told(
        because="ranks call collectives with different sizes or in different order, and their messages do not fit",
        fixes=(
            Fix(
                title="find the first call that differs",
                commands=("export TORCH_DISTRIBUTED_DEBUG=DETAIL",),
                needs="job restart",
            ),
            Fix(
                title="give all ranks the same sizes: exchange the lengths first and pad",
                commands=("dist.all_gather_object(lengths, len(mine))   # then pad to max(lengths)",),
                needs="code change, job restart",
            ),
        ),
    )
