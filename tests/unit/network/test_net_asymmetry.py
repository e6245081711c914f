"""DDP306 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.network.net_asymmetry import NetAsymmetry

from ddp_doctor.model import Absent, Confidence

HIT = "node-a:1:2 [0] NCCL INFO Using network IB\nnode-b:3:4 [0] NCCL INFO Using network Socket"
NEAR = "node-a:1:2 [0] NCCL INFO Using network Socket\nnode-b:3:4 [0] NCCL INFO Using network Socket"


def test_hit() -> None:
    judged = judge_log(NetAsymmetry, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.LIKELY
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(NetAsymmetry, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(NetAsymmetry, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
