"""DDP602: the ranks get different numbers of batches."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class UnevenInputs(Check):
    id, name = "DDP602", "uneven-inputs"
    title = "The ranks get different numbers of batches"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.TRAINING})
    told = Told(
        because="ranks with fewer batches leave the loop earlier, and the others wait in the next step's collective",
        fixes=(
            Fix(
                title="make the ranks take equal numbers of steps",
                commands=("DataLoader(dataset, sampler=DistributedSampler(dataset, drop_last=True), drop_last=True)",),
                needs="code change, job restart",
            ),
            Fix(
                title="or let DDP fill in for ranks that are through",
                commands=("with model.join():   # around the training loop (torch.distributed.algorithms.join)",),
                needs="code change, job restart",
            ),
        ),
    )
