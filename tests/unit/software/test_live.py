"""The checks of host software on a running job's ranks, as values."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.software.not_comm import NotComm
from ddp_doctor_checks.software.python_deadlock import PythonDeadlock
from job_facts import UNREADABLE, busy, collective, job, pid_of, process, subject, waiting

from ddp_doctor.facts.job import Task
from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Check, Stage

IDLE = {"state": "waiting", "cpu": 0.0}
FUTEX = (Task(id=pid_of(1), name="python", state="S", wchan="futex_do_wait"),)


def stack(number: int, *frames: tuple[str, str], thread: int = 0, **changes: Any) -> Stack:
    """Frames of one thread of a rank, innermost first."""
    return Stack(
        subject=subject(None, pid_of(number)).__class__(
            host="node-a", pid=pid_of(number), start_time=77, thread=pid_of(number) + thread
        ),
        source=f"pid {pid_of(number)} thread {pid_of(number) + thread}",
        frames=tuple(Frame(function=name, file=file, line=7) for name, file in frames),
        **changes,
    )


def at_a_lock(number: int, **changes: Any) -> Any:
    """A rank whose innermost frame is the script's own line and that uses no CPU."""
    return busy(number, where="train.py:30 take_lock", functions=("take_lock", "main"), **{**IDLE, **changes})


def test_hit_a_file_lock() -> None:
    judged = run_check(
        NotComm,
        *job(waiting(0, 1), busy(1, **IDLE), culprits=(1,)),
        process(0),
        process(1, system_call="flock", file="/data/cache.lock", lock_holder=77),
    )
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.summary == "rank 1 waits for the lock on /data/cache.lock, which PID 77 holds"
    assert finding.ranks == (1,)


def test_hit_a_pipe() -> None:
    ranks = job(collective(0, "all_reduce", 1), busy(1, stage=Stage.INITIALIZED, **IDLE), culprits=(1,))
    (finding,) = run_check(NotComm, *ranks, process(1, system_call="read", file="pipe:[4]")).findings
    assert "waits in read of pipe:[4]" in finding.summary
    assert finding.fixes[0].commands[0].startswith("find /proc/[0-9]*/fd -lname 'pipe:\\[4\\]'")


def test_hit_a_pipe_whose_writer_has_ended() -> None:
    ranks = job(collective(0, "all_reduce", 1), busy(1, stage=Stage.INITIALIZED, **IDLE), culprits=(1,))
    helper = process(None, pid=4300, parent=pid_of(1), state="Z")
    (finding,) = run_check(NotComm, *ranks, process(1, system_call="read", file="pipe:[4]"), helper).findings
    assert finding.summary.endswith("; a process that it started, PID 4300, has ended")


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        (
            ("Cmd.cmdloop", "Pdb._cmdloop", "Pdb.interaction", "Pdb.user_line", "main"),
            "rank 1 stands in the debugger at train.py:88",
        ),
        (("_raw_input", "unix_getpass", "login"), "rank 1 asks for a password at train.py:88"),
    ],
    ids=["breakpoint", "password"],
)
def test_hit_nobody_answers(functions: tuple[str, ...], says: str) -> None:
    rank = busy(1, **IDLE, functions=functions)
    (finding,) = run_check(NotComm, *job(waiting(0, 1), rank, culprits=(1,)), process(0), process(1)).findings
    assert finding.summary.startswith(says) and finding.ranks == (1,)


def test_hit_a_question_on_standard_input() -> None:
    asks = process(1, system_call="read", file="pipe:[4]", descriptor=0)
    (finding,) = run_check(NotComm, *job(waiting(0, 1), busy(1, **IDLE), culprits=(1,)), process(0), asks).findings
    assert finding.summary.startswith("rank 1 asks for input at train.py:88 prepare_dataset")
    assert "instead of asking" in finding.fixes[0].title


def test_hit_a_lock_that_another_rank_holds_in_a_collective() -> None:
    ranks = job(collective(0, "barrier", 1), busy(1, stage=Stage.INITIALIZED, **IDLE), culprits=(1,))
    locked = process(1, system_call="flock", file="/data/cache.lock", lock_holder=pid_of(0))
    (finding,) = run_check(NotComm, *ranks, process(0), locked).findings
    assert "which rank 0 holds, which stands in barrier" in finding.summary
    assert "release the lock before" in finding.fixes[0].title


def test_hit_the_data_loader() -> None:
    worker = busy(0, role="data-worker", rank=None, where="data.py:9 __getitem__", pid=4300, **IDLE)
    idle = busy(0, role="data-worker", rank=None, pid=4301, **IDLE)
    foreign = busy(0, role="data-worker", rank=None, where="other.py:1 __getitem__", pid=4302, **IDLE)
    rank = busy(1, doing="data", **IDLE)
    ranks = job(collective(0, "all_reduce", 1), rank, foreign, idle, worker, culprits=(1,))
    started = [process(None, pid=pid, parent=pid_of(number)) for pid, number in ((4300, 1), (4301, 1), (4302, 0))]
    (finding,) = run_check(NotComm, *ranks, process(1), *started).findings
    assert "they stand at data.py:9 __getitem__" in finding.summary
    assert [each.value for each in finding.evidence[1:]] == ["worker, waiting: data.py:9 __getitem__"]


def test_clear_a_rank_that_works() -> None:
    ranks = job(waiting(0, 1), busy(1), culprits=(1,))
    assert run_check(NotComm, *ranks, process(1, system_call="read", file="/data/a")).outcome.status == "clear"


def test_clear_a_wait_inside_torch() -> None:
    ranks = job(waiting(0, 1), waiting(1), culprits=(1,))
    assert run_check(NotComm, *ranks, process(1, system_call="read", file="pipe:[4]")).outcome.status == "clear"


def test_hit_the_gil_is_held() -> None:
    hog = stack(1, ("sleep_in_c", "ext.py"), owns_gil=True, active=False)
    (finding,) = run_check(PythonDeadlock, *job(waiting(0, 1), busy(1, **IDLE)), process(1), hog).findings
    assert "holds the GIL" in finding.summary and finding.ranks == (1,)


def test_clear_the_gil_is_held_by_a_thread_that_runs() -> None:
    hog = stack(1, ("compute", "train.py"), owns_gil=True, active=True)
    assert run_check(PythonDeadlock, *job(waiting(0, 1), busy(1)), process(1), hog).outcome.status == "clear"


def test_hit_an_import_lock() -> None:
    ranks = job(waiting(0, 1), busy(1, doing="import-lock", call="import", **IDLE))
    (finding,) = run_check(PythonDeadlock, *ranks, process(1), stack(1, ("boot", "pkg.py"))).findings
    assert "deadlocked in an import" in finding.summary


def test_hit_forked_while_a_lock_was_held() -> None:
    parent = process(None, pid=4000)
    child = process(1, parent=4000, tasks=FUTEX)
    ranks = job(at_a_lock(1))
    (finding,) = run_check(PythonDeadlock, *ranks, parent, child, stack(1, ("take_lock", "train.py"))).findings
    assert finding.summary.startswith("rank 1 was forked while another thread held a lock, and waits for it at")
    assert "nprocs=2" in finding.fixes[0].commands[1]


def test_hit_two_locks() -> None:
    tasks = (*FUTEX, Task(id=pid_of(1) + 1, name="writer", state="S", wchan="futex_do_wait"))
    both = stack(1, ("take_lock", "train.py")), stack(1, ("write", "train.py"), thread=1)
    (finding,) = run_check(
        PythonDeadlock, *job(waiting(0, 1), at_a_lock(1), culprits=(1,)), process(1, tasks=tasks), *both
    ).findings
    assert finding.summary.startswith("2 threads of rank 1 wait for locks")


def test_clear_a_queue_that_is_empty() -> None:
    """A wait in the standard library's queue is how a healthy thread idles."""
    idle = stack(1, ("wait", "/usr/lib/python3.11/threading.py"), ("get", "/usr/lib/python3.11/queue.py"))
    rank = busy(1, where="train.py:30 serve", functions=("wait", "get", "serve"), **IDLE)
    ranks = job(waiting(0, 1), rank, culprits=(1,))
    assert run_check(PythonDeadlock, *ranks, process(1, tasks=FUTEX), idle).outcome.status == "clear"


@pytest.mark.parametrize("check", [NotComm, PythonDeadlock])
def test_unknown_without_rights(check: type[Check]) -> None:
    assert run_check(check, UNREADABLE).outcome.status == "unknown"
