"""DDP116: several processes claim the same rank."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.script import GroupStart
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.launch.duplicate_rank_live import from_job
from ddp_doctor_checks.launch.duplicate_rank_meeting import from_meeting

NEEDS = "code change, job restart"


class DuplicateRank(Check):
    id, name = "DDP116", "duplicate-rank"
    title = "Several processes claim the same rank"
    needs = ((GroupStart, CommunicatorStop, JobRank, Attendee),)
    also_reads = (Attendance, *communicator.READS)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.STORE_WAIT, Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP}) | {
        Stage.FIRST_COLLECTIVE
    }
    explains = ("DDP101", "DDP604")
    told = Told(
        because="two processes have the same RANK, so one rank is there twice and another never comes; NCCL and the store "
        "wait without an error",
        fixes=(
            Fix(
                title="see the ranks that live, end the stranger, and start once",
                commands=(
                    "for p in $(pgrep -f train.py); do tr '\\0' '\\n' < /proc/$p/environ | grep -E '^(RANK|WORLD_SIZE)='; done",
                ),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if bool(facts[GroupStart] or facts[JobRank] or facts[Attendee]) or facts.lacking(JobRank):
            return ""
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for met in from_meeting(facts):
            yield self.finding(**met)
        yield from communicator.findings(self, facts)
        for start in facts[GroupStart]:
            if not start.same_rank:
                continue
            by_hand = start.started_by == "launcher"
            sure = not by_hand and start.processes is not None
            place = start.rank_place or start.at
            shown = [start.evidence()] if place == start.at else [place.evidence(start.kind()), start.evidence()]
            title = "take the rank the launcher gives" if by_hand else "take the number the worker is given"
            fix = Fix(title=title, diff=start.rank_rewrite, needs=NEEDS)
            if not start.rank_rewrite:
                fix = Fix(title=title, commands=('rank = int(os.environ["RANK"])',), needs=NEEDS)
                if place != start.at and "environ" in place.code:
                    fix = Fix(
                        title=f"take RANK out of {place.source}: set there, it hides the rank that each process is given",
                        commands=(f"${{EDITOR:-vi}} +{place.line} {shlex.quote(place.path)}",),
                        needs=NEEDS,
                    )
            yield self.finding(
                f"every process that runs this joins as rank {start.rank} ({place.source})",
                because="two processes of one rank overwrite each other's keys in the store, and the ranks nobody takes are "
                "waited for until the timeout"
                + (
                    "; a script edited by hand for each machine starts, but torchrun and Slurm run one text"
                    if by_hand
                    else ""
                ),
                evidence=shown,
                fixes=[fix],
                severity=Severity.WARNING if by_hand else Severity.ERROR,
                confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
            )
