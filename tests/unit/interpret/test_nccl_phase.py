"""Where a rank stands by its lines, in both orders of NCCL, and whom the others wait for."""

from __future__ import annotations

import pytest
from trial import STARTED, meaning, rank

from ddp_doctor.facts.communicator import CommunicatorCause, CommunicatorStop
from ddp_doctor.interpret.nccl_phase import RankLog, find_cause, version_of
from ddp_doctor.model import Stage
from ddp_doctor.readers.nccl_log import parse_all

USING = "Using network Socket"
TIMINGS = "Bootstrap timings total 0.1 (create 0.0, send 0.0, recv 0.0, ring 0.0, delay 0.0)"
DENIED = "P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1."
RINGS = "comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
ORDER = "Channel 00/02 :    0   1"
VIA = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
CONNECTED = "Connected all rings, use ring PXN 0 GDR 1"
COMPLETE = "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init COMPLETE"


@pytest.mark.parametrize(
    ("version", "messages", "phase", "stage"),
    [
        ("2.27.5", [], "silent", Stage.INITIALIZED),
        ("2.27.5", ["Bootstrap: Using eth0:10.0.0.1<0>"], "interface", Stage.COMM_BOOTSTRAP),
        ("2.27.5", [USING], "network", Stage.COMM_BOOTSTRAP),
        ("2.21.5", [USING], "bootstrap", Stage.COMM_BOOTSTRAP),
        ("2.27.5", [USING, STARTED], "bootstrap", Stage.COMM_BOOTSTRAP),
        ("2.21.5", [USING, STARTED], "exchange", Stage.COMM_TOPOLOGY),
        ("2.27.5", [STARTED, TIMINGS], "exchange", Stage.COMM_TOPOLOGY),
        ("2.27.5", [STARTED, TIMINGS, DENIED], "topology", Stage.COMM_TOPOLOGY),
        ("2.27.5", [STARTED, TIMINGS, RINGS, ORDER], "rings", Stage.COMM_TOPOLOGY),
        ("2.21.5", [STARTED, ORDER, VIA], "connect", Stage.TRANSPORT),
        ("2.21.5", [STARTED, ORDER, VIA, CONNECTED], "connected", Stage.TRANSPORT),
        ("2.27.5", [STARTED, TIMINGS, COMPLETE], "complete", Stage.FIRST_COLLECTIVE),
        ("2.27.5", [STARTED, TIMINGS, COMPLETE, VIA], "first-connect", Stage.TRANSPORT),
        ("2.27.5", [STARTED, TIMINGS, COMPLETE, VIA, CONNECTED], "first-connected", Stage.FIRST_COLLECTIVE),
    ],
)
def test_the_phase_behind_the_last_line(version: str, messages: list[str], phase: str, stage: Stage) -> None:
    (stop,) = [fact for fact in meaning(rank(0, *messages, version=version)) if isinstance(fact, CommunicatorStop)]
    assert (stop.phase, stop.stage) == (phase, stage)


def cause_of(*ranks: object) -> CommunicatorCause | None:
    return next((fact for fact in meaning(*ranks) if isinstance(fact, CommunicatorCause)), None)  # type: ignore[arg-type]


def test_the_one_behind_all_others_is_the_culprit() -> None:
    cause = cause_of(rank(0, STARTED, TIMINGS, RINGS), rank(1, STARTED, TIMINGS))
    assert cause is not None
    assert (cause.fault, cause.ranks, cause.waiting, cause.certain) == ("stuck-in-driver", (1,), (0,), False)


def test_the_one_in_a_system_call_is_the_culprit_where_lines_are_alike() -> None:
    waiting = rank(0, STARTED, TIMINGS, threads={"100": "sleep", "105": "polls"})
    stuck = rank(1, STARTED, TIMINGS, threads={"101": "sleep", "106": "ioctl"})
    cause = cause_of(waiting, stuck)
    assert cause is not None
    assert (cause.ranks, cause.details["call"]) == ((1,), "ioctl")


def test_ranks_that_all_wait_alike_name_nobody() -> None:
    cause = cause_of(rank(0, STARTED, TIMINGS), rank(1, STARTED, TIMINGS))
    assert cause is not None and cause.fault == "unnamed"


def test_known_noise_is_no_warning() -> None:
    facts = meaning(rank(0, STARTED, "WARN lib wrapper not initialized."))
    assert [fact.warning for fact in facts if isinstance(fact, CommunicatorStop)] == [""]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("Bootstrap Root : mismatch in info from procs, nranks 2 vs 3, nroots 1 vs 1, iroot 0 vs 0", "world-size"),
        ("Bootstrap Root : mismatch in rank count from procs 2 : 3", "world-size"),
        (
            "Bootstrap Root : mismatch in info from procs, nranks 2 vs 2, nroots 1 vs 1, iroot 0 vs 0, offset 0 vs -36831230",
            "nccl-version",
        ),
        ("Message truncated : received 176 bytes instead of 172", "nccl-version"),
        ("Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22809", "nccl-version"),
        (
            "Error: failed to extend /dev/shm/nccl-jdlz6b to 9637892 bytes, error: No space left on device (28)",
            "shm-full",
        ),
        ("P2P is disabled between NVLINK connected GPUs 0 and 1. This should not be the case", "nvlink-without-p2p"),
        ("No transport found for rank 0[1000] -> rank 1[2000]", "no-transport"),
        ("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", "duplicate-gpu"),
    ],
)
def test_lines_of_a_job_that_is_not_ours(line: str, fault: str) -> None:
    """Ranks of a log: nothing is known of them but what NCCL printed."""
    texts = [
        f"node-a:7:8 [0] NCCL INFO {STARTED}",
        f"node-a:7:9 [0] bootstrap.cc:1 NCCL WARN {line}",
    ]
    lines = tuple(found for text in texts for found in parse_all(text))
    cause = find_cause([RankLog(rank=0, lines=lines, machine="node-a"), RankLog(rank=1, lines=(), machine="node-b")])
    assert cause is not None and cause.fault == fault


def test_the_address_belongs_to_the_rank_that_told_it() -> None:
    root = rank(0, "Bootstrap: Using docker0:172.17.0.1<0>", STARTED)
    refused = "socketPollConnect: connect to 172.17.0.1<49731> returned Connection refused, retrying (5/34) after sleep"
    other = rank(1, "Bootstrap: Using docker0:172.17.0.1<0>", STARTED, refused, network="net:[2]")
    cause = cause_of(root, other)
    assert cause is not None
    assert (cause.fault, cause.ranks, cause.details["shared"]) == ("unreachable", (0, 1), "yes")


def test_the_version_is_in_the_lines() -> None:
    assert version_of(list(parse_all("vm:1:2 [0] NCCL INFO NCCL version 2.30.7+cuda12.9"))) == (2, 30, 7)
    assert version_of(list(parse_all("NCCL version 2.21.5+cuda12.4"))) == (2, 21, 5)
