"""DDP607 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.program.ddp_model_mismatch import DdpModelMismatch

from ddp_doctor.model import Absent, Confidence

HIT = "RuntimeError: [1]: params[0] in this process with sizes [2, 8] appears not to match sizes of the same param in process 0."  # noqa: E501
NEAR = "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 363 params, while rank 0 has inconsistent 0 params."  # noqa: E501


def test_hit() -> None:
    judged = judge_log(DdpModelMismatch, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.LIKELY
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(DdpModelMismatch, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(DdpModelMismatch, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
