"""DDP505: a data loader or a file lock hangs, not communication."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import ANY_STAGE, Check, Facts, Finding, Fix, Told
from ddp_doctor_checks.software.not_comm_live import from_job


class NotComm(Check):
    id, name = "DDP505", "not-comm"
    title = "A data loader or a file lock hangs, not communication"
    acts_at = ANY_STAGE
    explains = ("DDP604",)
    needs = ((LogEvent, JobRank),)
    told = Told(
        because="the rank waits for its data loader or for a file lock; if no rank stands in a collective, communication "
        "is not at fault",
        fixes=(
            Fix(
                title="load in the main process once, as a test",
                commands=("DataLoader(dataset, num_workers=0)",),
                needs="code change, job restart",
            ),
            Fix(
                title="keep caches that are locked on a local disk",
                commands=("export HF_HOME=/tmp/hf XDG_CACHE_HOME=/tmp/cache   # a disk of the node",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
