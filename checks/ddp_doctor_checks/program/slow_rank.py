"""DDP604: one rank is busy longer than the others wait."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import Child, JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.facts.process import Stack
from ddp_doctor.model import ANY_STAGE, Check, Facts, Finding, Fix, Told
from ddp_doctor_checks.program.slow_rank_dumps import from_dumps
from ddp_doctor_checks.program.slow_rank_live import from_job


class SlowRank(Check):
    id, name = "DDP604", "slow-rank"
    title = "One rank is busy longer than the others wait"
    acts_at = ANY_STAGE
    needs = ((LogEvent, JobRank, Stack),)
    also_reads = (Child,)
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

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for seen in from_dumps(facts):
            yield self.finding(**seen)
