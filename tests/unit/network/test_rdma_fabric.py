"""DDP304 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.network.rdma_fabric import RdmaFabric

from ddp_doctor.model import Absent, Confidence

HIT = "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<49577> with error 12, opcode 1, len 0, vendor err 129"
NEAR = "vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE"


def test_hit() -> None:
    judged = judge_log(RdmaFabric, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.LIKELY
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(RdmaFabric, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(RdmaFabric, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )
