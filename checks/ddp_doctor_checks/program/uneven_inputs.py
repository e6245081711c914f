"""DDP602: the ranks get different numbers of batches."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.program.uneven_inputs_live import from_job


class UnevenInputs(Check):
    id, name = "DDP602", "uneven-inputs"
    title = "The ranks get different numbers of batches"
    needs = ((LogEvent, JobRank),)
    acts_at = frozenset({Stage.TRAINING}) | {Stage.INITIALIZED, Stage.FIRST_COLLECTIVE, Stage.DDP_VERIFY}
    explains = ("DDP604",)
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

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
