"""DDP306 on lines of logs, and on the adapters of several hosts."""

from __future__ import annotations

from pathlib import Path

import msgspec
from checking import judge_log, run_check
from ddp_doctor_checks.network.net_asymmetry import NetAsymmetry
from hcas import Port, seen

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.model import Absent, Confidence, Severity, Subject

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


IB = Port(link_layer="InfiniBand", gids={0: ("fe80::1", "IB/RoCE v1")})


def test_infiniband_here_and_roce_there(tmp_path: Path) -> None:
    (found,) = run_check(NetAsymmetry, *seen(tmp_path, a=(IB,), b=(Port(),), c=(IB,))).findings
    assert found.severity is Severity.ERROR
    assert "odd: mlx5_0:1 of b" in found.summary and "b: RoCE" in found.summary


def test_both_kinds_on_every_host_are_clear(tmp_path: Path) -> None:
    both = (IB, Port(hca="mlx5_9"))
    assert run_check(NetAsymmetry, *seen(tmp_path, a=both, b=both)).outcome.status == "clear"


def test_an_adapter_that_one_host_lacks(tmp_path: Path) -> None:
    two = (IB, msgspec.structs.replace(IB, hca="mlx5_1"))
    (found,) = run_check(NetAsymmetry, *seen(tmp_path, a=two, b=two, c=(IB,))).findings
    assert found.severity is Severity.WARNING
    assert "adapters of c are not those of the other hosts: it lacks mlx5_1:1" in found.summary
    assert found.fixes[1].commands == ("export NCCL_IB_HCA='=mlx5_0:1'",)


def test_a_host_without_any_adapter(tmp_path: Path) -> None:
    ranks = [Attendee(subject=Subject(host=name, rank=rank), rank=rank) for rank, name in enumerate("ab")]
    (found,) = run_check(NetAsymmetry, *seen(tmp_path, a=(IB,)), *ranks).findings
    assert found.severity is Severity.ERROR and "adapters of b" in found.summary


def test_adapters_do_not_matter_to_a_job_over_sockets(tmp_path: Path) -> None:
    facts = seen(tmp_path, {"NCCL_IB_DISABLE": "1"}, a=(IB,), b=(Port(),))
    assert run_check(NetAsymmetry, *facts).outcome.status == "clear"
