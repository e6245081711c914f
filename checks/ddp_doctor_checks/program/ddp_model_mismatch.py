"""DDP607: the ranks built different models."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class DdpModelMismatch(Check):
    id, name = "DDP607", "ddp-model-mismatch"
    title = "The ranks built different models"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.DDP_VERIFY})
    told = Told(
        because="DDP compares the number and sizes of parameters over all ranks, and they differ: the ranks built "
        "different models",
        fixes=(
            Fix(
                title="print what each rank builds, and build it from the same configuration and seed",
                commands=("print(dist.get_rank(), [tuple(p.shape) for p in model.parameters()])",),
                needs="code change, job restart",
            ),
        ),
    )
