"""What another examination said: its findings, where its ranks stood, and what it was."""

from __future__ import annotations

from ddp_doctor.model import Fact, Finding, RankRow, Redacted, Target


class Examined(Fact, frozen=True, kw_only=True):
    """That an examination was made, by `command`, of `target`; its facts or findings stand beside this one."""

    command: str
    version: str = ""
    target: Target = Target()
    redacted: Redacted = Redacted()

    def text(self) -> str:
        return f"ddp-doctor {self.version} {self.command}"


class ReportedFinding(Fact, frozen=True, kw_only=True):
    """A finding of a report; the check of its id adopts it."""

    finding: Finding

    def text(self) -> str:
        return f"{self.finding.id}: {self.finding.summary}"


class ReportedRank(Fact, frozen=True, kw_only=True):
    """Where a rank stood when it was examined."""

    row: RankRow

    def text(self) -> str:
        return f"rank {self.row.rank} in {self.row.stage}, {self.row.state}"
