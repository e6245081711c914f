"""Tracebacks of several ranks that do not end at the same place."""

from __future__ import annotations

from ddp_doctor.facts.process import Frame, Stack, StoreWait
from ddp_doctor.interpret.ended import collective, ended_apart
from ddp_doctor.model import Subject

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def ended(rank: int, call: str, line: int, file: str = C10D) -> Stack:
    frames = (Frame(function=call, file=file, line=1), Frame(function="train", file="/job/train.py", line=line))
    return Stack(
        subject=Subject(rank=rank),
        source=f"rank{rank}.log:1",
        frames=frames,
        ended="RuntimeError: timed out",
        process=f"rank{rank}.log",
    )


def wait(rank: int, key: str) -> StoreWait:
    return StoreWait(source=f"rank{rank}.log:9", keys=(key,), milliseconds=5000, process=f"rank{rank}.log", line="x")


def test_ranks_in_different_calls() -> None:
    (event,) = ended_apart([ended(0, "barrier", 29), ended(1, "all_reduce", 30)], [])
    assert event.leads[:2] == ("DDP601", "DDP603")
    assert "rank 0 in barrier (train.py:29 train)" in event.line


def test_ranks_in_one_call_tell_nothing() -> None:
    assert ended_apart([ended(0, "all_reduce", 30), ended(1, "all_reduce", 30)], []) == []
    assert ended_apart([ended(0, "all_reduce", 30)], []) == []


def test_calls_in_disguise() -> None:
    assert collective(ended(0, "_verify_param_shape_across_processes", 3)) == "DistributedDataParallel()"
    assert collective(ended(0, "barrier", 3, file="/job/threads.py")) == ""


def test_a_group_that_others_are_past() -> None:
    others = [ended(0, "all_reduce", 30), ended(1, "all_reduce", 30)]
    (event,) = ended_apart(others, [wait(3, "/default_pg/0//cpu//0/4")])
    assert event.leads[0] == "DDP117" and "rank 4" in event.line
    assert ended_apart([], [wait(3, "/default_pg/0//cpu//0/4")]) == []
    assert ended_apart(others, [wait(3, "/default_pg/0//2//cpu//0/4")]) == []
