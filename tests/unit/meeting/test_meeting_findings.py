"""What the checks make of ranks that met before init."""

from __future__ import annotations

from typing import Any

import pytest
from attendees import attendance, attendee
from checking import run_check
from ddp_doctor_checks.launch.duplicate_gpu import DuplicateGpu
from ddp_doctor_checks.launch.duplicate_rank import DuplicateRank
from ddp_doctor_checks.launch.fork_after_cuda import ForkAfterCuda
from ddp_doctor_checks.launch.master_inconsistent import MasterInconsistent
from ddp_doctor_checks.launch.missing_ranks import MissingRanks
from ddp_doctor_checks.launch.rank_config_mismatch import RankConfigMismatch
from ddp_doctor_checks.launch.thread_launch import ThreadLaunch
from ddp_doctor_checks.launch.world_size_mismatch import WorldSizeMismatch
from ddp_doctor_checks.program.rank_stopped import RankStopped
from ddp_doctor_checks.software.version_mismatch import VersionMismatch

from ddp_doctor.facts.gpu import DriverGpu
from ddp_doctor.model import Check, Finding, Subject

HEALTHY = (attendee(0), attendee(1), attendance(2, 0, 1))
CHECKS = (
    DuplicateGpu, DuplicateRank, ForkAfterCuda, MasterInconsistent, MissingRanks, RankConfigMismatch, ThreadLaunch,
    WorldSizeMismatch, RankStopped, VersionMismatch,
)  # fmt: skip


def the_finding(check: type[Check], *facts: Any) -> Finding:
    judged = run_check(check, *facts)
    assert judged.outcome.status == "hit", judged.outcome.reason
    (finding,) = judged.findings
    return finding


def gravity(finding: Finding) -> tuple[str, str]:
    return finding.severity.value, finding.confidence.value


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_job_gives_nothing(check: type[Check]) -> None:
    assert run_check(check, *HEALTHY).findings == ()


def test_late_ranks_are_a_warning_and_dead_ones_an_error() -> None:
    late = the_finding(MissingRanks, attendee(0, 4), attendance(4, 0))
    assert gravity(late) == ("warning", "likely") and late.ranks == (1, 2, 3)
    here = the_finding(MissingRanks, attendee(0, 4, local_world_size=4), attendance(4, 0))
    assert gravity(here) == ("warning", "certain") and here.ranks == (1, 2, 3)
    dead = the_finding(
        MissingRanks, attendee(0), attendee(1, gone="ended", stayed_s=0.4), attendance(2, 0, missing=(), gone=(1,))
    )
    assert gravity(dead) == ("error", "certain") and dead.ranks == (1,)
    assert "PID 4101" in dead.evidence[0].value


def test_who_comes_after_the_others_went_on_is_not_the_one_to_worry() -> None:
    finding = the_finding(MissingRanks, attendee(1), attendance(2, 1, ahead=True))
    assert finding.severity.value == "note" and "rank 1 of world size 2 came after" in finding.summary


def test_threads_of_one_process() -> None:
    threads = (attendee(0, thread=5, main_thread=False), attendee(1, pid=4100, thread=6, main_thread=False))
    finding = the_finding(ThreadLaunch, *threads, attendance(2, 0, 1))
    assert gravity(finding) == ("error", "certain") and finding.ranks == (0, 1)
    assert "    torch.multiprocessing.spawn(training_func, nprocs=2)" in finding.fixes[0].commands


def test_one_rank_in_a_thread_is_a_note_and_a_starter_in_one_a_warning() -> None:
    rank = the_finding(ThreadLaunch, attendee(0, main_thread=False), attendee(1), attendance(2, 0, 1))
    assert rank.severity.value == "note"
    starter = the_finding(ThreadLaunch, attendee(None, None, main_thread=False, thread_name="worker"))
    assert gravity(starter) == ("warning", "likely")


def test_a_rank_that_is_there_twice_names_the_one_that_is_not() -> None:
    finding = the_finding(DuplicateRank, attendee(0), attendee(0, pid=9), attendance(2, 0))
    assert gravity(finding) == ("error", "certain") and finding.ranks == (0,)
    assert "PID 9" in finding.summary and "nobody is rank 1" in finding.summary


def test_ranks_of_one_shell_with_stores_of_their_own_may_be_two_jobs() -> None:
    finding = the_finding(DuplicateRank, attendee(0), attendee(0, pid=9, port="29501"), attendance(2, 0, sure=False))
    assert gravity(finding) == ("error", "likely")


def test_the_minority_is_named() -> None:
    ranks = [attendee(rank, 4) for rank in range(3)]
    size = the_finding(WorldSizeMismatch, *ranks, attendee(3, 8), attendance(8, 0, 1, 2, 3))
    assert gravity(size) == ("error", "certain") and size.ranks == (3,)
    assert "ranks 0, 1 and 2: 4; rank 3: 8" in size.summary
    port = the_finding(MasterInconsistent, *ranks, attendee(3, 4, port="29501"), attendance(4, 0, 1, 2, 3))
    assert gravity(port) == ("error", "certain") and port.ranks == (3,)
    assert port.fixes[0].commands == ("export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500",)


def test_loopback_on_two_hosts() -> None:
    finding = the_finding(MasterInconsistent, attendee(0), attendee(1, host="node-b"), attendance(2, 0, 1))
    assert gravity(finding) == ("error", "certain") and "2 hosts" in finding.summary


def test_rank_0_may_say_loopback_and_the_others_its_name() -> None:
    other = attendee(1, host="node-b", address="node-a")
    assert run_check(MasterInconsistent, attendee(0, address="localhost"), other, attendance(2, 0, 1)).findings == ()


@pytest.mark.parametrize(
    ("name", "severity"),
    [("TORCH_DISTRIBUTED_DEBUG", "error"), ("NCCL_PROTO", "warning"), ("NCCL_SOCKET_IFNAME", "warning")],
)
def test_settings_that_must_be_alike(name: str, severity: str) -> None:
    facts = (attendee(0, variables={name: "DETAIL"}), attendee(1), attendance(2, 0, 1))
    assert gravity(the_finding(RankConfigMismatch, *facts)) == (severity, "likely")


def test_interfaces_have_names_of_their_own_on_each_host() -> None:
    here, there = {"NCCL_SOCKET_IFNAME": "eth0"}, {"NCCL_SOCKET_IFNAME": "ens5"}
    facts = (attendee(0, variables=here), attendee(1, host="node-b", variables=there), attendance(2, 0, 1))
    assert run_check(RankConfigMismatch, *facts).findings == ()


def test_forked_after_cuda() -> None:
    finding = the_finding(ForkAfterCuda, attendee(0, cuda="bad-fork"), attendee(1), attendance(2, 0, 1))
    assert gravity(finding) == ("error", "certain") and finding.ranks == (0,)
    notebook = the_finding(ForkAfterCuda, attendee(None, None, notebook=True, cuda="initialised"))
    assert gravity(notebook) == ("warning", "likely")


def test_one_gpu_for_two_ranks() -> None:
    gpu = DriverGpu(subject=Subject(host="node-a"), index=0, uuid="GPU-1")
    masked = {"variables": {"CUDA_VISIBLE_DEVICES": "0"}, "cuda_build": "12.8"}
    finding = the_finding(DuplicateGpu, attendee(0, **masked), attendee(1, **masked), gpu, attendance(2, 0, 1))
    assert gravity(finding) == ("error", "likely") and finding.ranks == (0, 1)
    apart = attendee(1, **(masked | {"host": "node-b"}))
    assert run_check(DuplicateGpu, attendee(0, **masked), apart, gpu).findings == ()


def test_different_releases() -> None:
    finding = the_finding(VersionMismatch, attendee(0, torch="2.13.0"), attendee(1, torch="2.12.0"))
    assert gravity(finding) == ("warning", "likely") and finding.ranks == (0, 1)
    assert run_check(VersionMismatch, attendee(0, torch="2.13.0"), attendee(1)).findings == ()


def test_a_stopped_rank() -> None:
    finding = the_finding(RankStopped, attendee(0), attendee(1, gone="stopped"), attendance(2, 0))
    assert gravity(finding) == ("error", "certain") and finding.fixes[0].commands == ("kill -CONT 4101",)
    assert "DDP101" not in finding.explains  # a rank that has not come is no echo of one that is stopped


def test_a_host_that_fell_silent_is_stopped_and_one_that_was_lost_is_missing() -> None:
    silent = attendee(1, host="node-b", gone="silent")
    found = the_finding(RankStopped, attendee(0), silent, attendance(2, 0, missing=(), stopped=(1,)))
    assert gravity(found) == ("error", "likely") and found.ranks == (1,) and found.hosts == ("node-b",)
    lost = attendee(1, host="node-b", gone="cut-off")
    found = the_finding(MissingRanks, attendee(0), lost, attendance(2, 0))
    assert "the network lost the host" in found.summary and found.hosts == ("node-b",)
