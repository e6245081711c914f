"""DDP304 on lines of logs, and on the adapters of several hosts."""

from __future__ import annotations

from pathlib import Path

from checking import judge_log, run_check
from ddp_doctor_checks.network.rdma_fabric import RdmaFabric
from hcas import V2_IPV4, Port, seen

from ddp_doctor.model import Absent, Confidence, Severity

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


def test_one_port_is_down(tmp_path: Path) -> None:
    two = (Port(), Port(hca="mlx5_1"))
    down = (Port(), Port(hca="mlx5_1", state="1: DOWN", physical="2: Polling"))
    (found,) = run_check(RdmaFabric, *seen(tmp_path, a=two, b=down, c=two)).findings
    assert found.severity is Severity.WARNING
    assert found.summary == "RDMA port mlx5_1:1 of b is DOWN (Polling), and ACTIVE on 2 other hosts"
    assert found.evidence[0].source == "/sys/class/infiniband/mlx5_1/ports/1"


def test_the_only_port_of_a_host_is_down(tmp_path: Path) -> None:
    (found,) = run_check(RdmaFabric, *seen(tmp_path, a=(Port(),), b=(Port(state="2: INIT"),))).findings
    assert found.severity is Severity.ERROR and "mlx5_0:1 of b is INIT" in found.summary


def test_a_port_without_a_cable_on_every_host_is_clear(tmp_path: Path) -> None:
    both = (Port(), Port(hca="mlx5_1", state="1: DOWN", physical="3: Disabled"))
    assert run_check(RdmaFabric, *seen(tmp_path, a=both, b=both)).outcome.status == "clear"


def test_a_port_that_is_left_out_may_be_down(tmp_path: Path) -> None:
    up, down = (Port(), Port(hca="mlx5_1")), (Port(), Port(hca="mlx5_1", state="1: DOWN"))
    for wish in ("=mlx5_0", "^mlx5_1", "mlx5_0:1"):
        facts = seen(tmp_path / wish, {"NCCL_IB_HCA": wish}, a=up, b=down)
        assert run_check(RdmaFabric, *facts).outcome.status == "clear", wish


def test_a_gid_table_that_differs_where_nccl_is_told_to_look(tmp_path: Path) -> None:
    odd = {index: entry for index, entry in V2_IPV4.items() if index < 2}
    hosts = {"a": (Port(),), "b": (Port(gids=odd),), "c": (Port(),)}
    (found,) = run_check(RdmaFabric, *seen(tmp_path / "set", {"NCCL_IB_GID_INDEX": "3"}, **hosts)).findings
    assert found.severity is Severity.ERROR
    assert found.summary == "the GID table of RDMA port mlx5_0:1 differs on b: GID 3: empty; on a GID 3: RoCE v2, IPv4"
    assert found.fixes[0].commands == ("unset NCCL_IB_GID_INDEX",)
    assert run_check(RdmaFabric, *seen(tmp_path / "unset", **hosts)).outcome.status == "clear"


def test_a_gid_of_another_type(tmp_path: Path) -> None:
    odd = {**V2_IPV4, 3: ("::ffff:10.0.0.2", "IB/RoCE v1")}
    facts = seen(tmp_path, {"NCCL_IB_GID_INDEX": "3"}, a=(Port(),), b=(Port(),), c=(Port(gids=odd),))
    (found,) = run_check(RdmaFabric, *facts).findings
    assert "differs on c: GID 3: IB/RoCE v1, IPv4" in found.summary


def test_a_slow_link(tmp_path: Path) -> None:
    slow = Port(rate="25 Gb/sec (1X EDR)")
    (found,) = run_check(RdmaFabric, *seen(tmp_path, a=(Port(),), b=(slow,), c=(Port(),))).findings
    assert found.severity is Severity.WARNING and "of b runs at 25 Gb/sec" in found.summary


def test_a_driver_that_does_not_answer_is_unknown() -> None:
    absent = Absent(kind="HcaPort", status="timeout", reason="mlx5_0: no answer in 5.0 s", how_to_get="ibv_devinfo -v")
    assert run_check(RdmaFabric, absent).outcome.status == "unknown"
