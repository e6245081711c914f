"""DDP604 on lines of logs."""

from __future__ import annotations

from checking import judge_log, run_check
from ddp_doctor_checks.program.slow_rank import SlowRank

from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Absent, Confidence, Subject

HIT = "Map:  43%|####3     | 430000/1000000 [18:02<24:11, 392.70 examples/s]"
NEAR = "run 3 done"


def test_hit() -> None:
    judged = judge_log(SlowRank, HIT)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.evidence[0].source == "train.log:1"


def test_clear() -> None:
    judged = judge_log(SlowRank, NEAR, "NCCL INFO Failed to open libibverbs.so[.1]")
    assert judged.outcome.status == "clear"


def test_unknown_without_a_log() -> None:
    absent = Absent(
        kind="LogEvent", reason="train.log: permission denied", how_to_get="sudo ddp-doctor triage train.log"
    )
    outcome = run_check(SlowRank, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "train.log: permission denied: sudo ddp-doctor triage train.log",
    )


def dumped(pid: int, *frames: tuple[str, str], **changes: str) -> Stack:
    """The main thread of a saved dump, innermost frame first."""
    return Stack(
        subject=Subject(pid=pid, thread=pid),
        source=f"{pid}.txt thread {pid}",
        thread_name="MainThread",
        frames=tuple(Frame(function=function, file=file, line=8) for function, file in frames),
        **changes,
    )


INIT = dumped(1, ("init_process_group", "/env/torch/distributed/distributed_c10d.py"), ("<module>", "/me/train.py"))
OWN = (("connect_with_retry", "/me/train.py"), ("<module>", "/me/train.py"))


def test_a_dump_in_own_code_beside_one_in_init_makes_it_possible() -> None:
    (finding,) = run_check(SlowRank, INIT, dumped(2, *OWN)).findings
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.summary == "PID 2 is in train.py:8 connect_with_retry, while PID 1 waits in init_process_group"
    assert finding.fixes[0].commands == ("ddp-doctor attach 2   # on its node",)


def test_dumps_that_do_not_part_are_clear() -> None:
    worker = ("_worker_loop", "/env/torch/utils/data/_utils/worker.py")
    assert run_check(SlowRank, dumped(1, *OWN), dumped(2, *OWN)).outcome.status == "clear"
    assert run_check(SlowRank, INIT, dumped(2, *OWN, ended="ValueError: no")).outcome.status == "clear"
    assert run_check(SlowRank, INIT, dumped(2, ("load", "/me/train.py"), worker, *OWN)).outcome.status == "clear"
