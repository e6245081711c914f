"""DDP607: the ranks built different models."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.program.ddp_model_mismatch_live import from_job


class DdpModelMismatch(Check):
    id, name = "DDP607", "ddp-model-mismatch"
    title = "The ranks built different models"
    needs = ((LogEvent, JobRank),)
    acts_at = frozenset({Stage.DDP_VERIFY}) | {Stage.INITIALIZED, Stage.TRAINING}
    explains = ("DDP604",)
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

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
