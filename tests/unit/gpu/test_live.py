"""The checks of GPUs on a running job's ranks, as values."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.gpu.gpu_fault import GpuFault
from ddp_doctor_checks.gpu.leftover_process import LeftoverProcess
from ddp_doctor_checks.gpu.p2p_driver import P2pDriver
from ddp_doctor_checks.launch.duplicate_gpu import DuplicateGpu
from ddp_doctor_checks.launch.port_in_use import PortInUse
from ddp_doctor_checks.network.ip_family import IpFamily
from ddp_doctor_checks.software.version_mismatch import VersionMismatch
from job_facts import HOST, busy, collective, job, listener, pid_of, process, subject, waiting

from ddp_doctor.facts.gpu import GpuProcess
from ddp_doctor.facts.job import JobRank, Task
from ddp_doctor.facts.nccl_live import GpuUse, NcclCall
from ddp_doctor.model import Check, Fact, Severity, Stage, Subject

INIT = ("ncclCommInitRankFunc", "ncclCommInitRank")
PEER = ("cudaDeviceCanAccessPeer", "p2pCanConnect", "ncclTopoComputePaths", "initTransportsRank", *INIT)
JOIN = ("ncclP2pImportShareableBuffer", "p2pMap", "p2pSendConnect", "ncclTransportP2pSetup", *INIT)


def forming(rank: int, *others: int, doing: str = "communicator", stage: Stage = Stage.COMM_TOPOLOGY) -> JobRank:
    return waiting(rank, *others, doing=doing, call="ncclCommInitRank", stage=stage, at_most=stage)


def call(rank: int, frames: tuple[str, ...], does: str, version: str = "2.27.5") -> NcclCall:
    return NcclCall(
        subject=subject(None, pid_of(rank)), library="/x/libnccl.so.2", version=version, frames=frames, does=does
    )


def use(index: int, *pids: int, **changes: Any) -> GpuUse:
    holders = tuple(
        GpuProcess(**{"pid": pid, "mib": 500, "state": "S", "command": "python", "parent": 9, **changes})
        for pid in pids
    )
    return GpuUse(subject=Subject(host=HOST), index=index, uuid=f"GPU-{index}", label=f"GPU {index}", processes=holders)


STUCK = [*job(forming(0, 1), forming(1, doing="driver"), culprits=(1,)), call(0, PEER, "polls")]


def test_hit_a_call_of_the_driver_that_does_not_return() -> None:
    (finding,) = run_check(GpuFault, *STUCK, call(1, PEER, "ioctl")).findings
    assert finding.ranks == (1,) and "cudaDeviceCanAccessPeer" in finding.summary
    assert "rank 0 waits for it" in finding.because
    assert run_check(P2pDriver, *STUCK, call(1, PEER, "ioctl")).findings == ()


def test_hit_while_it_joins_a_peers_memory() -> None:
    (finding,) = run_check(P2pDriver, *STUCK, call(1, JOIN, "ioctl")).findings
    assert finding.ranks == (1,) and finding.fixes[0].commands == ("export NCCL_P2P_DISABLE=1",)
    assert run_check(GpuFault, *STUCK, call(1, JOIN, "ioctl")).findings == ()


def test_clear_all_ranks_wait_in_nccl() -> None:
    facts = [*job(forming(0), forming(1)), call(0, PEER, "polls"), call(1, PEER, "polls")]
    for check in (GpuFault, P2pDriver, VersionMismatch):
        assert run_check(check, *facts).findings == ()


def test_hit_ranks_with_different_nccl() -> None:
    facts = [*job(forming(0), forming(1)), call(0, INIT, "polls"), call(1, INIT, "polls", "2.30.7")]
    (finding,) = run_check(VersionMismatch, *facts).findings
    assert finding.ranks == (0, 1) and "2.27.5 on rank 0, 2.30.7 on rank 1" in finding.summary


def test_hit_two_ranks_on_one_gpu() -> None:
    facts = [*job(forming(0, 2), forming(1, 2)), process(0), process(1)]
    (finding,) = run_check(DuplicateGpu, *facts, use(0, pid_of(0), pid_of(1)), use(1)).findings
    assert finding.ranks == (0, 1) and finding.severity is Severity.ERROR


def test_two_ranks_of_gloo_on_one_gpu_are_a_warning() -> None:
    facts = [*job(collective(0, "barrier", 1), busy(1)), process(0), process(1), use(0, pid_of(0), pid_of(1))]
    assert [each.severity for each in run_check(DuplicateGpu, *facts).findings] == [Severity.WARNING]


def test_clear_a_stray_context_beside_its_own_gpu() -> None:
    facts = [*job(forming(0, 1), forming(1)), process(0), process(1)]
    assert run_check(DuplicateGpu, *facts, use(0, pid_of(0), pid_of(1)), use(1, pid_of(1))).findings == ()


def test_hit_a_dead_process_holds_a_gpu() -> None:
    facts = [*job(forming(0, 1), forming(1))]
    (finding,) = run_check(LeftoverProcess, *facts, use(0, 999, state="")).findings
    assert "PID 999 is gone, but still holds 500 MiB of GPU 0" in finding.summary
    assert run_check(LeftoverProcess, *facts, use(0, pid_of(0))).findings == ()


def twice(parent: int, age: float) -> list[Fact]:
    ranks = [waiting(0, 2, world_size=3), waiting(1, 2, world_size=3), waiting(1, 2, world_size=3, pid=990)]
    return [
        *job(*ranks, missing=(2,)),
        process(0, parent=7, age_s=20.0),
        process(1, parent=7, age_s=20.0),
        process(None, pid=990, parent=parent, age_s=age),
    ]


def test_hit_an_orphan_of_an_earlier_run() -> None:
    (finding,) = run_check(LeftoverProcess, *twice(1, 900.0)).findings
    assert finding.ranks == (1,) and "kill 990" in finding.fixes[0].commands


@pytest.mark.parametrize(("parent", "age"), [(7, 900.0), (1, 21.0)])
def test_clear_a_sibling_or_one_of_the_same_age(parent: int, age: float) -> None:
    assert run_check(LeftoverProcess, *twice(parent, age)).findings == ()


def test_hit_rank_0_cannot_open_its_store() -> None:
    (finding,) = run_check(PortInUse, *job(busy(0), missing=(1,)), process(0), listener()).findings
    assert finding.ranks == (0,) and "nginx" in finding.summary


@pytest.mark.parametrize(
    "other", [{"owner": pid_of(0)}, {"owner": None}, {"network": 2}, {"port": 1}, {"threads": ("pt_tcpstore_uv",)}]
)
def test_clear_a_store_or_another_port(other: dict[str, Any]) -> None:
    assert run_check(PortInUse, *job(busy(0), missing=(1,)), process(0), listener(**other)).findings == ()


def test_hit_an_ipv6_master_without_ipv6() -> None:
    asks = waiting(1, 0, doing="refused", stage=Stage.STORE_CONNECT, master_address="fd00::1")
    (finding,) = run_check(IpFamily, *job(asks, missing=(0,)), process(1, ipv6=False)).findings
    assert finding.ranks == (1,)
    for known in (True, None):
        assert run_check(IpFamily, *job(asks, missing=(0,)), process(1, ipv6=known)).findings == ()


@pytest.mark.parametrize(
    "check",
    [GpuFault, P2pDriver, DuplicateGpu, LeftoverProcess, PortInUse, IpFamily, VersionMismatch],
    ids=lambda each: each.name,
)
def test_clear_a_healthy_job(check: type[Check]) -> None:
    facts = [*job(collective(0, "all_reduce"), collective(1, "all_reduce")), process(0), process(1)]
    held = [use(rank, pid_of(rank)) for rank in (0, 1)]
    calls = [call(rank, (), "") for rank in (0, 1)]
    assert run_check(check, *facts, *held, *calls).findings == ()


def test_threads_of_nccl_make_it_an_error() -> None:
    tasks = (Task(id=1, name="pt_nccl_watchdg"),)
    facts = [
        *job(collective(0, "barrier", 1), busy(1)),
        process(0, tasks=tasks),
        process(1),
        use(0, pid_of(0), pid_of(1)),
    ]
    assert [each.severity for each in run_check(DuplicateGpu, *facts).findings] == [Severity.ERROR]
