"""DDP603 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.program.collective_mismatch import CollectiveMismatch

from ddp_doctor.model import Absent, Confidence

HIT = "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 39."
NEAR = "NCCL INFO Connected all rings"


def test_hit() -> None:
    judged = judge_log(CollectiveMismatch, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.LIKELY
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(CollectiveMismatch, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(CollectiveMismatch, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
