"""DDP114 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.launch.remote_launch import RemoteLaunch

from ddp_doctor.model import Absent, Confidence

HIT = "subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no node-b hostname' returned non-zero exit status 255."  # noqa: E501
NEAR = "DeepSpeed starts 4 ranks on node-a"


def test_hit() -> None:
    judged = judge_log(RemoteLaunch, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.LIKELY
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(RemoteLaunch, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(RemoteLaunch, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
