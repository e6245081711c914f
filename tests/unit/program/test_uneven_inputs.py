"""DDP602 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.program.uneven_inputs import UnevenInputs

from ddp_doctor.model import Absent, Confidence

HIT = "hangs at the end of the epoch, drop_last=False"
NEAR = "run 3 done"


def test_hit() -> None:
    judged = judge_log(UnevenInputs, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(UnevenInputs, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(UnevenInputs, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
