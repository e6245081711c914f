"""DDP115: processes are spawned from the top level of a script without the main guard."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.script import SpawnCall
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.launch.spawn_guard_live import from_job


class SpawnGuard(Check):
    id, name = "DDP115", "spawn-guard"
    title = "Processes spawned without the main guard"
    needs = ((SpawnCall, JobRank),)
    acts_at = frozenset({Stage.NOT_STARTED, Stage.PYTHON}) | INIT
    explains = ("DDP101", "DDP116", "DDP604")
    told = Told(
        because="a spawned process imports the main script again; what starts the ranks there at module level starts them "
        "again",
        fixes=(
            Fix(
                title="start the ranks under the main guard only",
                commands=('if __name__ == "__main__":', "    main()"),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for call in facts[SpawnCall]:
            if call.guarded:
                continue
            title = 'put the call under `if __name__ == "__main__":`'
            fix = Fix(title=title, diff=call.rewrite, needs="code change")
            if not call.rewrite:
                fix = Fix(
                    title=title, commands=('if __name__ == "__main__":', f"    {call.at.code}"), needs="code change"
                )
            forks_today = call.method == "default"
            yield self.finding(
                f"{call.api} runs outside the main guard ({call.at.source})"
                + ("; Linux forks up to Python 3.13, later versions and macOS do not" if forks_today else ""),
                because="a spawned process imports the script again to find its function, reaches this call itself, and "
                "dies: `An attempt has been made to start a new process before the current process has finished its "
                "bootstrapping phase`",
                evidence=[call.evidence()],
                fixes=[fix],
                severity=Severity.NOTE if forks_today else Severity.ERROR,
                confidence=Confidence.CERTAIN if call.proven and not forks_today else Confidence.LIKELY,
            )
