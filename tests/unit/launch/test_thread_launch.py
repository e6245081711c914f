"""DDP103 on values."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.launch.thread_launch import ThreadLaunch

from ddp_doctor.facts.process import RankThread
from ddp_doctor.model import Absent, Confidence, Stage, Subject


def thread(number: int | None, rank: int | None, **changes: Any) -> RankThread:
    """A thread of PID 20303 that waits for the other rank's key."""
    values: dict[str, Any] = {
        "subject": Subject(host="node-a", pid=20303, start_time=77, thread=number, rank=rank),
        "source": f"pid 20303 thread {number}",
        "at_least": Stage.STORE_WAIT,
        "at_most": Stage.GLOO_MESH,
        "rank": rank,
        "thread_name": f"rank{rank}",
        "where": "train.py:12 worker",
    }
    return RankThread(**(values | changes))


def test_hit_two_ranks_in_one_process() -> None:
    judged = run_check(ThreadLaunch, thread(20347, 0), thread(20348, 1))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.confidence is Confidence.CERTAIN and finding.ranks == (0, 1)
    assert finding.summary == "2 ranks run as threads of one process, PID 20303"


def test_hit_two_groups_in_one_log() -> None:
    one = thread(
        None, None, process="a.log", subject=Subject(), group_number=0, waits_for="/default_pg/0//cpu//0/1", ended="x"
    )
    other = thread(
        None, None, process="a.log", subject=Subject(), group_number=1, waits_for="/default_pg/1//cpu//0/0", ended="x"
    )
    (finding,) = run_check(ThreadLaunch, one, other).findings
    assert finding.confidence is Confidence.LIKELY


def test_a_retry_in_one_log_is_only_possible() -> None:
    first = thread(
        None,
        None,
        process="a.log",
        subject=Subject(),
        thread_name="",
        group_number=0,
        waits_for="/default_pg/0//cpu//0/1",
        ended="x",
    )
    again = thread(
        None,
        None,
        process="a.log",
        subject=Subject(),
        thread_name="",
        group_number=1,
        waits_for="/default_pg/1//cpu//0/1",
        ended="x",
    )
    (finding,) = run_check(ThreadLaunch, first, again).findings
    assert finding.confidence is Confidence.POSSIBLE


def test_clear_two_processes() -> None:
    other = thread(20348, 1, subject=Subject(host="node-a", pid=20304, start_time=78, thread=20348, rank=1))
    assert run_check(ThreadLaunch, thread(20347, 0), other).outcome.status == "clear"


def test_clear_a_group_of_its_own_in_a_thread() -> None:
    checkpoint = thread(20350, 0, group="async-checkpoint")
    assert run_check(ThreadLaunch, thread(20347, 0), checkpoint).outcome.status == "clear"


def test_clear_a_recycled_pid() -> None:
    later = thread(20348, 1, subject=Subject(host="node-a", pid=20303, start_time=99, thread=20348, rank=1))
    assert run_check(ThreadLaunch, thread(20347, 0), later).outcome.status == "clear"


def test_unknown_without_stacks() -> None:
    absent = Absent(
        kind="RankThread", reason="cannot read PID 20303: it belongs to another user", how_to_get="run sudo"
    )
    outcome = run_check(ThreadLaunch, absent).outcome
    assert (outcome.status, outcome.reason) == (
        "unknown",
        "cannot read PID 20303: it belongs to another user: run sudo",
    )


def test_hit_two_threads_that_died_before_any_key() -> None:
    one = thread(None, None, process="a.log", subject=Subject(), ended="DistNetworkError: EADDRINUSE")
    other = thread(
        None, None, process="a.log", subject=Subject(), thread_name="rank1", ended="DistNetworkError: timed out"
    )
    (finding,) = run_check(ThreadLaunch, one, other).findings
    assert finding.confidence is Confidence.LIKELY
