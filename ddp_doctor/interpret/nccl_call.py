"""The functions of libnccl that a rank stands in to the phase of its communicator, and to whether it waits for others.

The names are those of NCCL 2.18 to 2.30; a name that a version does not have is simply not found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddp_doctor.facts.communicator import STAGES, Phase
from ddp_doctor.facts.nccl_live import WAITS, NcclCall
from ddp_doctor.model import Stage

_PHASES: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (re.compile(r"^(?!\w+CanConnect$)(ncclTransport\w*(Connect|Setup)|ncclCollPreconnectFunc|ncclP2PPreconnectFunc|p2p\w*(Setup|Connect)"
                r"|shm\w*(Setup|Connect)|net\w*(Setup|Connect)|ncclNvls\w*|ncclCollNet\w*Setup|ncclProxyConnect)$"), "connect"),
    (re.compile(r"^(devCommSetup|setupChannel|ncclProxyCreate|bootstrapIntraNodeBarrier|bootstrapBarrier)$"), "connected"),
    (re.compile(r"^fillInfo$"), "exchange"),
    (re.compile(r"^(ncclTopo\w+|initTransportsRank|ncclMnnvlCheck)$"), "topology"),
    (re.compile(r"^(bootstrapInit|bootstrapSplit)$"), "bootstrap"),
    (re.compile(r"^(commAlloc|ncclNetInit|ncclNvml\w+|ncclGinInit)$"), "network"),
    (re.compile(r"^(ncclInit|initOnce|ncclInitEnv|bootstrapNetInit|ncclGetUniqueId|ncclCudaLibraryInit)$"), "interface"),
    (re.compile(r"^(ncclLaunchKernel\w*|ncclEnqueueCheck|doLaunches)$"), "first-connected"),
)  # fmt: skip
COLLECTIVE = re.compile(r"^nccl(AllReduce|Broadcast|Bcast|Reduce|AllGather|ReduceScatter|Send|Recv|GroupEnd)$")


def phase_of_call(frames: Sequence[str]) -> Phase | None:
    """The phase these functions, innermost first, belong to; None where they tell none."""
    for pattern, phase in _PHASES:
        if any(pattern.match(name) for name in frames):
            if phase == "connect" and frames and COLLECTIVE.match(frames[-1]):
                return "first-connect"
            return phase
    return "driver" if frames and frames[-1].startswith("ncclCommInit") else None


def stage_of_call(call: NcclCall) -> Stage | None:
    """The stage of a rank in that call."""
    phase = phase_of_call(call.frames)
    return STAGES[phase] if phase is not None else None


def waits(call: NcclCall) -> bool:
    """Whether it waits for other ranks."""
    return call.does in WAITS


def stuck(call: NcclCall) -> bool:
    """Whether it stands in a call that is no wait for another rank and that did not return for a second."""
    return bool(call.frames) and call.does not in (*WAITS, "", "computes", "moves")
