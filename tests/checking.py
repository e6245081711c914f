"""What tests of checks share: facts in, judgement out."""

from __future__ import annotations

from ddp_doctor.judge import Judgement, judge_one
from ddp_doctor.model import Absent, Check, Fact, Facts


def run_check(check: type[Check], *facts: Fact | Absent) -> Judgement:
    """Judge one check on these facts and absences."""
    return judge_one(
        check(),
        Facts(
            [item for item in facts if isinstance(item, Fact)],
            [item for item in facts if isinstance(item, Absent)],
        ),
    )
