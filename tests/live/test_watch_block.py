"""`with ddp_doctor.watch():` in the script: silent when init is quick, and a report from outside when it is not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import HANGS, free_port

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

LEAVES_NOTHING = """
import ctypes, os, signal, sys, threading
sys.path[:0] = {path!r}

def around():
    return (sorted(os.listdir("/proc/self/fd")), dict(os.environ), [signal.getsignal(n) for n in range(1, 32)],
            threading.active_count(), signal.pthread_sigmask(signal.SIG_BLOCK, []),
            open(f"/proc/self/task/{{os.getpid()}}/children").read())

before = around()
import ddp_doctor
with ddp_doctor.watch(after=60, until=lambda: False) as inside:
    child = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
    assert len(child) == 1, child
assert around() == before, (before, around())
assert not os.path.exists(f"/proc/{{child[0]}}")
new = {{name.partition(".")[0] for name in sys.modules}}
assert not new & {{"torch", "rich", "typer", "msgspec", "subprocess", "socket", "json"}}, new
with ddp_doctor.watch(after=60), ddp_doctor.watch(after=60):
    assert len(open(f"/proc/self/task/{{os.getpid()}}/children").read().split()) == 1
os.environ["DDP_DOCTOR"] = "off"
with ddp_doctor.watch(after=60, until=lambda: 1 / 0):
    assert around()[-1] == "" and threading.active_count() == 1
"""


@contextmanager
def job(*ranks: dict[str, str], **variables: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes inside a block, one per set of variables, killed at the end."""
    common = {"PYTHONPATH": os.pathsep.join(sys.path), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, str(HANGS / "in_a_block.py")], env=os.environ | common | variables | rank, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        for rank in ranks
    ]  # fmt: skip
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def ranks(size: int, *here: int) -> list[dict[str, str]]:
    """The variables of ranks of a job of that size."""
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)} for rank in here]


def report_of(process: subprocess.Popen[str], last: str = r"^\d+ errors? found|^could not|exit") -> str:
    """What it writes to stderr up to the end of a report."""
    lines: list[str] = []
    assert process.stderr is not None
    given_up = threading.Timer(90, process.kill)
    given_up.start()
    for line in process.stderr:
        lines.append(line)
        if re.search(last, line):
            break
    given_up.cancel()
    return "".join(lines)


def test_a_quick_block_leaves_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_NOTHING.format(path=sys.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("after=0", "seconds above 0"), ("until=3", "takes a function"), ("on_hang='die'", "'report' or 'abort'")],
)
def test_wrong_arguments_are_named(wrong: str, says: str) -> None:
    import ddp_doctor

    with pytest.raises(ValueError, match=says):
        eval(f"ddp_doctor.watch({wrong})", {"ddp_doctor": ddp_doctor})


def test_the_gil_held_in_c_is_reported_in_time() -> None:
    with job({}, HOW="gil", AFTER="6") as (rank,):
        assert rank.stdout is not None
        inside = float(rank.stdout.readline().split()[1])
        text = report_of(rank)
        seconds = time.time() - inside
    assert "error[DDP506]" in text and "holds the GIL" in text
    assert 6.0 <= seconds < 6.0 + 3.0


def test_one_rank_speaks_and_the_other_writes(tmp_path: Path) -> None:
    with job(*ranks(3, 0, 1), HOW="init", AFTER="6", DDP_DOCTOR_REPORT_DIR=str(tmp_path)) as (first, second):
        spoken = report_of(first)
        other = report_of(second, last="its report is")
    assert "error[DDP101]" in spoken and "rank 0 has not finished initialisation 6 s after it began" in spoken
    assert "error[" not in other
    path = Path(other.split()[-1])
    assert path.parent == tmp_path and "error[DDP101]" in path.read_text()
    written = json.loads(path.with_suffix(".json").read_text())
    assert written["verdict"]["finding"] == "DDP101" and [row["rank"] for row in written["ranks"]] == [0, 1, 2]


def test_ranks_that_hang_are_aborted_after_they_were_examined() -> None:
    with job(*ranks(3, 0, 1), HOW="init", AFTER="6", ON_HANG="abort") as both:
        ends = [process.communicate(timeout=60)[1] for process in both]
        codes = [process.returncode for process in both]
    assert codes == [-signal.SIGABRT, -signal.SIGABRT], ends
    assert "error[DDP101]" in ends[0] and "DDP606" not in ends[0]
    assert "its report is /tmp/" in ends[1]


def test_no_rank_leaves_by_an_error_of_its_connection_to_one_that_was_aborted_before() -> None:
    with job(*ranks(3, 0, 1, 2), HOW="collective", AFTER="9", ON_HANG="abort") as three:
        ends = [process.communicate(timeout=90)[1] for process in three]
        codes = [process.returncode for process in three]
    assert codes == [-signal.SIGABRT] * 3, ends
    assert "error[DDP60" in ends[0] and "Traceback" not in "".join(ends)


def test_threads_as_ranks_are_named_once() -> None:
    with job({}, HOW="threads") as (process,):
        text = report_of(process)
        time.sleep(3)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[1]
    assert "error[DDP103]: 2 ranks run as threads of one process" in text
    assert "DDP103" not in rest


def helpers_of(pid: int) -> list[int]:
    """Its children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_until_ends_the_watch_inside_the_block() -> None:
    with job({}, HOW="until", AFTER="30", SECONDS="5") as (process,):
        assert process.stdout is not None and process.stdout.readline()
        end = time.monotonic() + 30
        while helpers_of(process.pid):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert process.poll() is None
        out, error = process.communicate(timeout=60)
    assert (out, error, process.returncode) == ("outside\n", "", 0)


def test_a_rank_that_works_is_not_called_hung_nor_aborted() -> None:
    with job(*ranks(2, 0), HOW="works", SECONDS="6", ON_HANG="abort") as (process,):
        out, error = process.communicate(timeout=60)
    assert (process.returncode, "outside" in out, error) == (0, True, "")


def test_nothing_stays_when_the_rank_is_killed() -> None:
    with job(*ranks(3, 0), HOW="init", AFTER="60") as (process,):
        assert process.stdout is not None and process.stdout.readline()
        (helper,) = helpers_of(process.pid)
        time.sleep(0.5)
        process.kill()
        process.wait()
        end = time.monotonic() + 5
        while Path(f"/proc/{helper}").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
