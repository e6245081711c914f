"""DDP118 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.rank_config_mismatch import RankConfigMismatch
from launching import meant, tree, variables

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.model import Absent, Confidence, Severity, Stage

STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_PROCID": "2",
        "SLURM_LOCALID": "2"}  # fmt: skip
TASK = tree("python train.py", "slurmstepd: [7.0]", "systemd")


def conf(name: str, value: str, in_effect: bool = True) -> Variable:
    return Variable(source="/etc/nccl.conf:4", name=name, value=value, in_effect=in_effect)


def test_hit_one_rank_exported_for_all_tasks() -> None:
    judged = run_check(RankConfigMismatch, *meant(*variables(STEP | {"RANK": "0"}), *TASK))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.summary == "RANK=0, but slurm started this process as SLURM_PROCID=2"
    assert finding.fixes[0].commands == ('export RANK="$SLURM_PROCID"',)


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("NCCL_COMM_ID", "10.0.0.1:99", Severity.ERROR),
        ("TORCH_DISTRIBUTED_DEBUG", "1", Severity.ERROR),
        ("GLOO_DEVICE_TRANSPORT", "tcp", Severity.ERROR),
        ("CUDA_LAUNCH_BLOCKING", "1", Severity.WARNING),
        ("NCCL_SOCKET_FAMILY", "ipv4", Severity.NOTE),
        ("NCCL_DEBUG", "ALL", Severity.NOTE),
        ("NCCL_IGNORE_DISABLED_P2P", "1", Severity.NOTE),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", Severity.NOTE),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", Severity.NOTE),
    ],
)
def test_hit_settings_as_grave_as_what_they_do(name: str, value: str, severity: Severity) -> None:
    (finding,) = run_check(RankConfigMismatch, *meant(*variables({name: value}))).findings
    assert finding.severity is severity
    assert finding.fixes[0].commands == (f"unset {name}",)


def test_hit_p2p_and_shm_both_off_is_a_note() -> None:
    facts = meant(*variables({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}))
    (finding,) = run_check(RankConfigMismatch, *facts).findings
    assert finding.severity is Severity.NOTE and "node of its own" in finding.summary


@pytest.mark.parametrize(
    ("name", "value", "severity", "mended"),
    [
        ("NCCL_SOCKET_IFNAME", '"eth0"', Severity.WARNING, "NCCL_SOCKET_IFNAME=eth0"),
        ("NCCL_SOCKET_IFNAME", "eth0 # storage is eth1", Severity.WARNING, "NCCL_SOCKET_IFNAME=eth0"),
        ("NCCL_SOCKET_IFNAME", "eth0\r", Severity.WARNING, "NCCL_SOCKET_IFNAME=eth0"),
        ("NCCL_SOCKET_IFNAME ", " eth0", Severity.NOTE, "NCCL_SOCKET_IFNAME=eth0"),
        ("export NCCL_IB_DISABLE", "1", Severity.NOTE, "NCCL_IB_DISABLE=1"),
        ("NCCL_IB_DISABLE", "'1'", Severity.NOTE, "NCCL_IB_DISABLE=1"),
    ],
)
def test_hit_lines_of_a_conf_file(name: str, value: str, severity: Severity, mended: str) -> None:
    (finding,) = run_check(RankConfigMismatch, *meant(conf(name, value))).findings
    assert finding.severity is severity and finding.confidence is Confidence.CERTAIN
    assert finding.fixes[0].commands == (f"sed -i '4c {mended}' /etc/nccl.conf",)


@pytest.mark.parametrize(
    "fact",
    [
        conf("NCCL_IB_DISABLE", "1 # strtoll stops at the blank"),
        conf("NCCL_SOCKET_IFNAME", '"eth0"', in_effect=False),
        conf("NCCL_SOCKET_IFNAME", "^lo,docker0"),
        *variables({"NCCL_DEBUG": "info", "NCCL_P2P_DISABLE": "1", "CUDA_LAUNCH_BLOCKING": "0", "NCCL_COMM_ID": ""}),
        *variables(
            {"TORCH_DISTRIBUTED_DEBUG": "detail", "GLOO_DEVICE_TRANSPORT": "TCP", "NCCL_SOCKET_FAMILY": "AF_INET6"}
        ),
    ],
)
def test_near_miss_settings(fact: Variable) -> None:
    assert run_check(RankConfigMismatch, *meant(fact)).outcome.status == "clear"


@pytest.mark.parametrize("environ", [{"RANK": "2", "LOCAL_RANK": "2"}, {"RANK": "x"}])
def test_near_miss_ranks(environ: dict[str, str]) -> None:
    assert run_check(RankConfigMismatch, *meant(*variables(STEP | environ), *TASK)).outcome.status == "clear"


def test_near_miss_one_task_per_node_numbers_its_ranks_itself() -> None:
    environ = STEP | {"SLURM_STEP_TASKS_PER_NODE": "1(x4)", "RANK": "16"}
    assert run_check(RankConfigMismatch, *meant(*variables(environ), *TASK)).outcome.status == "clear"


def test_unknown() -> None:
    assert run_check(RankConfigMismatch, Absent(kind="Variable", status="timeout")).outcome.status == "unknown"


def trial(error: str) -> TrialRank:
    return TrialRank(rank=0, world_size=2, backend="gloo", stage=Stage.GLOO_MESH, outcome="failed", error=error)


def test_hit_a_transport_that_this_build_of_gloo_lacks() -> None:
    tls = variables({"GLOO_DEVICE_TRANSPORT": "TCP_TLS"})
    refused = trial("RuntimeError: makeDeviceForHostname(): unsupported gloo device")
    (finding,) = run_check(RankConfigMismatch, *meant(*tls, refused)).findings
    assert finding.severity is Severity.ERROR and finding.fixes[0].commands == ("unset GLOO_DEVICE_TRANSPORT",)
    other = trial("RuntimeError: connection reset")
    assert run_check(RankConfigMismatch, *meant(*tls, other)).outcome.status == "clear"
