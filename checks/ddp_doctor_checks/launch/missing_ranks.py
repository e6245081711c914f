"""DDP101: a rank never comes to the meeting, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.facts.job import JobRank
from ddp_doctor.model import INIT, Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.launch.missing_ranks_live import from_job
from ddp_doctor_checks.launch.missing_ranks_meeting import from_meeting


class MissingRanks(Check):
    id, name = "DDP101", "missing-ranks"
    title = "Ranks that never came"
    needs = ((CommunicatorStop, JobRank, Attendance),)
    also_reads = (Attendee, *communicator.READS)
    acts_at = INIT | {Stage.NOT_STARTED, Stage.PYTHON}
    residual = True
    told = Told(
        because="the ranks that are there wait until every rank of the world size has come; look first whether the "
        "missing ones crashed, never started, or cannot reach the store",
        fixes=(
            Fix(
                title="see which ranks live, on every node, and start all of them with one launcher",
                commands=(
                    "pgrep -af train.py   # on every node",
                    "torchrun --standalone --nproc-per-node=2 train.py   # as many as WORLD_SIZE says",
                ),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if bool(facts[JobRank]) or bool(facts[Attendance]) or facts.lacking(JobRank):
            return ""
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for met in from_meeting(facts):
            yield self.finding(**met)
        yield from communicator.findings(self, facts)
