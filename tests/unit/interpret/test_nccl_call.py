"""Functions of libnccl on a stack to the stage of a rank, as they were seen in NCCL 2.18 to 2.30."""

from __future__ import annotations

import pytest
from job_facts import process, subject

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.nccl_live import NcclCall, RasCommunicator, RasRank
from ddp_doctor.interpret.job import interpret
from ddp_doctor.interpret.nccl_call import phase_of_call, stuck, waits
from ddp_doctor.model import Facts, Stage

INIT = ("ncclCommInitRankFunc", "ncclAsyncLaunch", "ncclCommInitRankDev", "ncclCommInitRank")
BOOTSTRAP = ("socketProgressState", "ncclSocketAccept", "bootstrapInit", *INIT)
GATHER = ("socketProgressOpt", "ncclSocketSendRecv", "bootstrapAllGather", "initTransportsRank", *INIT)
PEER = ("cudaDeviceCanAccessPeer", "p2pCanConnect", "ncclTopoComputePaths", "initTransportsRank", *INIT)


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        (BOOTSTRAP, "bootstrap"),
        (GATHER, "topology"),
        (PEER, "topology"),
        (("fillInfo", "initTransportsRank", *INIT), "exchange"),
        (("ncclNvmlEnsureInitialized", "ncclNvmlDeviceGetHandleByPciBusId", "commAlloc", *INIT), "network"),
        (("p2pMap", "p2pSendConnect", "ncclTransportP2pSetup", "initTransportsRank", *INIT), "connect"),
        (
            ("p2pMap", "p2pSendConnect", "ncclTransportP2pSetup", "ncclCollPreconnectFunc", "ncclAllReduce"),
            "first-connect",
        ),
        (("cudaLaunchKernelExC", "ncclLaunchKernel", "groupLaunch", "ncclAllReduce"), "first-connected"),
        (("something",), None),
        ((), None),
    ],
)
def test_phase(frames: tuple[str, ...], phase: str | None) -> None:
    assert phase_of_call(frames) == phase


def call(rank: int, frames: tuple[str, ...], does: str) -> NcclCall:
    return NcclCall(
        subject=subject(None, 4100 + rank), library="/x/libnccl.so.2", version="2.27.5", frames=frames, does=does
    )


def ranks(*facts: object) -> dict[int | None, JobRank]:
    found = interpret(Facts(facts))  # type: ignore[arg-type]
    return {fact.rank: fact for fact in found if isinstance(fact, JobRank)}


def rank_process(rank: int) -> object:
    values = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    return process(rank, now=values, nccl="/x/libnccl.so.2")


def test_who_polls_waits_and_who_stands_in_a_call_is_waited_for() -> None:
    assert waits(call(0, GATHER, "polls")) and not stuck(call(0, GATHER, "polls"))
    assert stuck(call(1, PEER, "ioctl")) and not stuck(call(1, PEER, "moves")) and not stuck(call(1, (), "ioctl"))
    found = ranks(rank_process(0), rank_process(1), call(0, GATHER, "polls"), call(1, PEER, "ioctl"))
    assert found[0].doing == "communicator" and [wait.rank for wait in found[0].waits_for] == [1]
    assert found[1].doing == "driver" and found[1].waits_for == ()
    assert {found[0].stage, found[1].stage} == {Stage.COMM_TOPOLOGY}


def test_ras_tells_the_stage_of_a_rank_outside_of_nccl() -> None:
    told = RasCommunicator(
        source="NCCL RAS at 127.0.0.1:28028",
        status="RUNNING",
        ranks=(RasRank(rank=0, pid=4100, ready=True, launched=1),),
    )
    found = ranks(rank_process(0), rank_process(1), told)
    assert found[0].stage is Stage.FIRST_COLLECTIVE
    assert ranks(rank_process(0), rank_process(1))[0].stage is Stage.PYTHON
