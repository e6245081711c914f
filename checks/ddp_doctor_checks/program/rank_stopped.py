"""DDP608: a rank is stopped by a signal or debugger."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import ANY_STAGE, Check, Facts, Finding, Fix, Told
from ddp_doctor_checks.program.rank_stopped_live import from_job
from ddp_doctor_checks.program.rank_stopped_meeting import READS, from_meeting


class RankStopped(Check):
    id, name = "DDP608", "rank-stopped"
    title = "A rank is stopped by a signal or debugger"
    acts_at = ANY_STAGE
    explains = ("DDP604", "DDP606", "DDP101", "DDP603")
    needs = ((LogEvent, JobRank, Attendee),)
    also_reads = READS
    told = Told(
        because="a stopped process answers nobody; ranks that wait for it wait without an end, since its sockets stay "
        "open",
        fixes=(
            Fix(
                title="see who stopped it, and let it go on",
                commands=("grep -E 'State|TracerPid' /proc/PID/status", "kill -CONT PID"),
                needs="the owner of the process",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for met in from_meeting(facts):
            # who came late was seen to: that is no echo of a rank that is stopped
            others = tuple(each for each in self.explains if each != "DDP101")
            yield msgspec.structs.replace(self.finding(**met), explains=others)
