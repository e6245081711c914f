"""Where only ancestors may look into a process: what becomes py-spy is an ancestor of the ranks.

The kernel's rule is played by a program in the place of py-spy, which refuses where the kernel with ptrace_scope=1 would.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import HANGS, PY_SPY, free_port

from ddp_doctor.watching.seats import seats_are_needed

RULE = f"""#!{sys.executable} -IS
import os, sys
pid = above = int(sys.argv[sys.argv.index("--pid") + 1])
while above > 1 and above != os.getpid():
    above = int(open(f"/proc/{{above}}/stat").read().rpartition(")")[2].split()[1])
if above != os.getpid():
    sys.exit("Error: Operation not permitted (os error 1)")
os.execv({PY_SPY!r}, [{PY_SPY!r}, *sys.argv[1:]])
"""
WATCH = """
import sys, typer
from pathlib import Path
from ddp_doctor.watching.command import run_watched
from ddp_doctor.watching.observer import Observer

report, seats, rule, *command = sys.argv[1:]

def observe(pids, py_spy):
    def write(found, standing):
        Path(report).write_text(found.to_json())
        return True
    Observer(pids, 2.0, report=write, note=print, py_spy=py_spy or (rule,)).run()
    return True

sys.exit(run_watched(command, observe, py_spy=rule, seats=int(seats)))
"""


@pytest.mark.parametrize(
    ("scope", "capabilities", "needed"),
    [("1\n", "0000000000000000", True), ("1", "0000000000080000", False), ("0", "0000000000000000", False),
     ("2", "0000000000000000", False), (None, "0000000000000000", False)],
)  # fmt: skip
def test_seats_are_needed_where_only_ancestors_may_look(scope: str | None, capabilities: str, needed: bool) -> None:
    assert seats_are_needed(scope, f"Name:\tpython\nCapEff:\t{capabilities}\n") is needed


def watched(tmp_path: Path, seats: int, *command: str, **more: object) -> subprocess.Popen[bytes]:
    """A command below seats."""
    rule = tmp_path / "py-spy"
    rule.write_text(RULE)
    rule.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-c", WATCH, str(tmp_path / "report"), str(seats), str(rule), *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MASTER_PORT": str(free_port())},
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,  # type: ignore[call-overload]
    )  # fmt: skip


@pytest.mark.live
@pytest.mark.parametrize(("seats", "finding"), [(20, "DDP103"), (0, None)])
def test_stacks_are_read_from_the_seats_and_not_without_them(tmp_path: Path, seats: int, finding: str | None) -> None:
    process = watched(tmp_path, seats, sys.executable, str(HANGS / "threads_as_ranks.py"))
    _, error = process.communicate(timeout=90)
    assert process.returncode == 124, error
    report = json.loads((tmp_path / "report").read_text())
    assert report["verdict"]["finding"] == finding
    denied = [probe["reason"] for probe in report["probes"] if probe["name"] == "stacks"]
    assert (denied == [""]) is bool(seats), denied
    assert_all_end(process.pid)


@pytest.mark.live
@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 3", 3), ("kill -KILL $$", -signal.SIGKILL), ("exec /nonexistent 2>/dev/null", 127)],
)
def test_below_seats_the_command_ends_as_it_does_without(tmp_path: Path, command: str, code: int) -> None:
    process = watched(tmp_path, 5, "sh", "-c", command)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert_all_end(process.pid)


@pytest.mark.live
def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    process = watched(tmp_path, 5, "/nonexistent/torchrun")
    assert b"cannot run /nonexistent/torchrun: No such file" in process.communicate(timeout=60)[1]
    assert process.returncode == 127


@pytest.mark.live
def test_seats_end_with_the_watch_and_the_command_goes_on(tmp_path: Path) -> None:
    process = watched(tmp_path, 5, "sleep", "60")
    end = time.monotonic() + 20
    while "sleep 60 " not in left_of(process.pid).values():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(left_of(process.pid)) >= 8
    process.kill()
    process.wait()
    while len(left := left_of(process.pid)) > 1:
        assert time.monotonic() < end, left
        time.sleep(0.05)
    (pid,) = left
    assert left[pid] == "sleep 60 "
    os.kill(pid, signal.SIGKILL)
    process.communicate()


def assert_all_end(session: int, seconds: float = 10.0) -> None:
    """Processes that were killed need a moment until they are gone."""
    end = time.monotonic() + seconds
    while left := left_of(session):
        assert time.monotonic() < end, left
        time.sleep(0.05)


def left_of(session: int) -> dict[int, str]:
    """Command lines by PID, of the processes whose environment is that of the watch with this PID: same session."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
    return found
