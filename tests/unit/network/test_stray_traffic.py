"""DDP307 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.network.stray_traffic import StrayTraffic

from ddp_doctor.model import Absent, Confidence

HIT = "NCCL WARN socketFinalizeAccept: wrong magic 74656d2f20544547 != 9f2d"
NEAR = "NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>"


def test_hit() -> None:
    judged = judge_log(StrayTraffic, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.LIKELY
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(StrayTraffic, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(StrayTraffic, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
