"""DDP603: the ranks call different collectives or sizes."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.program.collective_mismatch_live import from_job


class CollectiveMismatch(Check):
    id, name = "DDP603", "collective-mismatch"
    title = "The ranks call different collectives or sizes"
    needs = ((LogEvent, JobRank),)
    acts_at = frozenset({Stage.FIRST_COLLECTIVE, Stage.DDP_VERIFY, Stage.TRAINING}) | {
        Stage.INITIALIZED,
        Stage.DDP_VERIFY,
    }
    explains = ("DDP604",)
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

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
