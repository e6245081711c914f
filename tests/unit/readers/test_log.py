"""Whole logs to facts."""
# ruff: noqa: E501

from __future__ import annotations

from ddp_doctor.examine import examine
from ddp_doctor.facts.log import LogEvent, NcclProgress, RankEnd
from ddp_doctor.facts.process import Stack, StoreWait
from ddp_doctor.model import Facts, Stage
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader
from ddp_doctor.readers.line import LONGEST
from ddp_doctor.readers.log import lines_of

LOADED = load_packs(third_party=False)
READER = LogReader(LOADED.signatures())
START = "vm:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x7f rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xb4 - Init START"


def progress(*lines: str) -> list[NcclProgress]:
    return [fact for fact in READER.read("\n".join(lines).encode(), "a.log") if isinstance(fact, NcclProgress)]


def test_start_means_another_stage_before_2_23() -> None:
    new, old = (
        progress(f"vm:1:1 [0] NCCL INFO NCCL version {version}+cuda12.4", START.format(pid=1, rank=0))[0]
        for version in ("2.27.5", "2.21.5")
    )
    assert (new.rank, new.ranks, new.comm) == (0, 2, "0xb4")
    assert new.stage is Stage.COMM_BOOTSTRAP and old.stage is Stage.COMM_TOPOLOGY


def test_ranks_of_one_log_are_told_apart_by_what_they_print() -> None:
    found = progress(START.format(pid=1, rank=0), START.format(pid=2, rank=1))
    assert [(each.subject.pid, each.rank) for each in found] == [(1, 0), (2, 1)]


def test_channels_after_complete_are_the_first_collective_connecting() -> None:
    (found,) = progress(
        START.format(pid=1, rank=0),
        START.format(pid=1, rank=0).replace("START", "COMPLETE"),
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    )
    assert found.complete and found.stage is Stage.TRANSPORT


def test_lines_that_differ_in_numbers_are_one_event() -> None:
    text = "\n".join(f"[W socket.cpp:464] port {n}: address already in use" for n in range(1000))
    events = [fact for fact in READER.read(text.encode(), "a.log") if isinstance(fact, LogEvent)]
    taken = [event for event in events if event.signature == "port-taken"]
    assert [(event.times, event.source) for event in taken] == [(200, "a.log:1")]  # no more than that are counted


def test_tracebacks_and_store_waits_are_found_in_the_stream() -> None:
    text = (
        "Exception in thread rank0:\nTraceback (most recent call last):\n"
        '  File "/job/train.py", line 12, in worker\n    dist.init_process_group()\n'
        "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/1\n"
    )
    facts = READER.read(text.encode(), "a.log")
    (stack,) = [fact for fact in facts if isinstance(fact, Stack)]
    (wait,) = [fact for fact in facts if isinstance(fact, StoreWait)]
    assert (stack.thread_name, stack.frames[0].function, stack.source) == ("rank0", "worker", "a.log:2")
    assert wait.keys == ("/default_pg/0//cpu//0/1",)


def test_failure_table() -> None:
    text = "[0]:\n  time      : 2026-11-30_10:00:00\n  host      : node-a\n  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 77)\n"
    (end,) = [fact for fact in READER.read(text.encode(), "a.log") if isinstance(fact, RankEnd)]
    assert (end.code, end.subject.rank, end.subject.pid, end.local_rank) == (-9, 3, 77, 1)


def test_lines_of_blocks() -> None:
    assert list(lines_of([b"ab\nc", b"d\n", b"", b"e"])) == [b"ab", b"cd", b"e"]
    (long,) = lines_of([b"x" * LONGEST * 2, b"y" * LONGEST * 2, b"y\nnext\n"])
    assert long == b"x" * LONGEST + b"\nnext"


def test_processes_that_print_the_same_are_each_followed() -> None:
    first = "vm:11:21 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct"
    other = "vm:12:22 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct"
    assert [each.subject.pid for each in progress(*[first] * 9, *[other] * 9)] == [11, 12]


def test_events_know_whose_they_are() -> None:
    warn = "vm:{pid}:9 [0] init.cc:1 NCCL WARN Cuda failure 'out of memory'"
    text = "\n".join((START.format(pid=1, rank=0), START.format(pid=2, rank=1), warn.format(pid=2)))
    (event,) = [
        fact
        for fact in READER.read(text.encode(), "a.log")
        if isinstance(fact, LogEvent) and fact.signature == "nccl-out-of-memory"
    ]
    assert (event.subject.rank, event.subject.host) == (1, "vm")
    report = examine("triage", LOADED, known=Facts(READER.read(text.encode(), "a.log")), waiting=lambda facts: True)
    assert (report.findings[0].ranks, report.findings[0].hosts) == ((1,), ("vm",))


def test_a_log_of_one_rank_is_that_ranks() -> None:
    text = START.format(pid=1, rank=3) + "\nRuntimeError: CUDA error: invalid device ordinal\n"
    events = [fact for fact in READER.read(text.encode(), "a.log") if isinstance(fact, LogEvent)]
    assert {event.subject.rank for event in events if event.signature == "device-ordinal"} == {3}


def test_words_of_other_programs_are_no_clue_in_a_long_log() -> None:
    package = (
        "2026-11-30 10:00:00 status installed libopenmpi3:amd64 4.1.4 ninja-build resolvconf docker.io slurm-client\n"
    )
    log = "".join(package.replace("10:00:00", f"10:{n // 60:02}:{n % 60:02}") for n in range(300))
    assert READER.read(log.encode(), "dpkg.log") == []
    assert READER.read((log + "NCCL WARN Bootstrap : no socket interface found\n").encode(), "job.log") != []
