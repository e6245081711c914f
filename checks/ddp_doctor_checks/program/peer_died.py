"""DDP606: another rank failed first."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import ANY_STAGE, Check, Facts, Finding, Fix, Told
from ddp_doctor_checks.program.peer_died_live import from_job


class PeerDied(Check):
    id, name = "DDP606", "peer-died"
    title = "Another rank failed first"
    acts_at = ANY_STAGE
    needs = ((LogEvent, JobRank),)
    residual = True
    told = Told(
        because="a rank ended or left a step out, and all that the others print follows from that",
        fixes=(
            Fix(
                title="find the rank that failed first: the earliest error over all ranks' logs",
                commands=(
                    "ddp-doctor triage LOG...   # the logs of all ranks",
                    "torchrun --log-dir=logs --redirects=3 --tee=3 --standalone \\",
                    "    --nproc-per-node=2 train.py   # keeps one log per rank",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
