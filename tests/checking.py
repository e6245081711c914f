"""What tests of checks share: facts in, judgement out."""

from __future__ import annotations

from ddp_doctor.interpret import interpret, interpreters
from ddp_doctor.judge import Judgement, judge_one
from ddp_doctor.model import Absent, Check, Fact, Facts
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader


def run_check(check: type[Check], *facts: Fact | Absent) -> Judgement:
    """Judge one check on these facts and absences."""
    return judge_one(
        check(),
        Facts(
            [item for item in facts if isinstance(item, Fact)],
            [item for item in facts if isinstance(item, Absent)],
        ),
    )


def judge_log(check: type[Check], *lines: str) -> Judgement:
    """Judge one check on the lines of a log, read by our own signatures."""
    facts = LogReader(load_packs(third_party=False).signatures()).read("\n".join(lines).encode(), "train.log")
    return judge_one(check(), interpret(Facts(facts), interpreters()))
