"""DDP506: python stands still inside one rank."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import ANY_STAGE, Check, Facts, Finding, Fix, Told
from ddp_doctor_checks.software.python_deadlock_live import from_job


class PythonDeadlock(Check):
    id, name = "DDP506", "python-deadlock"
    title = "Python stands still inside one rank"
    acts_at = ANY_STAGE
    explains = ("DDP604", "DDP505")
    needs = ((LogEvent, JobRank),)
    told = Told(
        because="a thread of the process holds the interpreter's lock or an import's, and another waits for it, so this "
        "rank stands still and the others wait for it",
        fixes=(
            Fix(
                title="see which thread holds it",
                commands=("py-spy dump --pid PID", "ddp-doctor attach PID"),
                needs="nothing",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
