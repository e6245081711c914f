"""`ddp-doctor watch -- CMD`: the command is as it was, and a job that hangs is named."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from faults import CONTROLS, PORT, Fault
from jobs import HANGS, free_port, without_paths

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

WATCH = (sys.executable, "-m", "ddp_doctor", "watch")
OF_THE_C_LIBRARY = 0x180000000
"""Signals 32 and 33, which every posix_spawn of glibc leaves ignored and every use of them sets anew."""
SHELL = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], preexec_fn=os.setpgrp)
print(process.pid, flush=True)
sys.exit(process.wait())
"""
COUNTS_SIGNALS = """
import signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: got.append(signal.Signals(number).name))
print("ready", flush=True)
while not got:
    time.sleep(0.05)
time.sleep(0.7)
print(*got, flush=True)
sys.exit(5)
"""


def environment(**variables: str) -> dict[str, str]:
    """This shell's with the doctor importable, and marks by which descendants are found."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MASTER_PORT": str(free_port())} | variables


def start(*command: str, options: Sequence[str] = (), **more: Any) -> subprocess.Popen[bytes]:
    """`watch` around a command, in a session of its own."""
    more.setdefault("env", environment())
    return subprocess.Popen([*WATCH, *options, "--", *command], start_new_session=True, **more)


def within(seconds: float, happened: Callable[[], object]) -> bool:
    """Whether it happens in time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def marked(mark: str) -> list[int]:
    """Processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes() and b") Z " not in (entry / "stat").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture
def mark() -> Iterator[str]:
    """A text for the environment of processes; whoever has it at the end is killed."""
    text = f"WATCH_TEST_MARK={time.time_ns()}"
    yield text
    for pid in marked(text):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -KILL $$"), -signal.SIGKILL),
        (("sh", "-c", "kill -SEGV $$"), -signal.SIGSEGV),
        (("/nonexistent/torchrun",), 127),
        ((str(HANGS),), 126),
    ],
)
def test_the_exit_code_is_the_commands(command: tuple[str, ...], code: int) -> None:
    assert start(*command, stderr=subprocess.DEVNULL).wait(30) == code


def test_input_output_and_their_order_are_the_commands() -> None:
    script = "cat; printf 'a\\377b\\0'; printf err >&2; printf 'c\\r\\n'; printf more >&2; printf '%s|' \"$@\""
    command = ["sh", "-c", script, "sh", "--after", "x y", "-o", "--", "é"]
    alone, watched = (
        subprocess.run(
            [*prefix, *command], input=b"in\xff", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment()
        )
        for prefix in ((), (*WATCH, "--"))
    )
    assert watched.stdout == alone.stdout
    assert b"in\xffa\xffb\0errc\r\nmore--after|x y|" in watched.stdout


def test_descriptors_and_ignored_signals_reach_the_command(tmp_path: Path) -> None:
    watched = f"{' '.join(WATCH)} -- sh -c 'echo through >&7; grep -E \"SigIgn|SigBlk\" /proc/self/status'"
    script = "trap '' HUP; exec 7>>there; %s"
    shown = [
        subprocess.run(
            ["sh", "-c", script % command], cwd=tmp_path, capture_output=True, env=environment(), check=True
        ).stdout
        for command in (watched, "sh -c 'grep -E \"SigIgn|SigBlk\" /proc/self/status'")
    ]
    assert (tmp_path / "there").read_text() == "through\n"
    watched_signals, alone = (
        {line.split()[0]: int(line.split()[1], 16) & ~OF_THE_C_LIBRARY for line in each.splitlines()} for each in shown
    )
    assert watched_signals == alone and alone[b"SigIgn:"] & 1


def test_nobody_else_keeps_the_output_open() -> None:
    process = start("sh", "-c", "exec >&-; exec 2>&-; sleep 3", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    assert process.stdout is not None and process.stdout.read() == b""
    assert time.monotonic() - began < 2.5
    assert process.wait(30) == 0


def ready(process: subprocess.Popen[bytes]) -> None:
    """Wait until the command's first line is there."""
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("whom", ["watch", "group"])
def test_a_signal_reaches_the_command_once(number: signal.Signals, whom: str) -> None:
    process = start(sys.executable, "-c", COUNTS_SIGNALS, stdout=subprocess.PIPE)
    ready(process)
    time.sleep(0.3)
    (os.kill if whom == "watch" else os.killpg)(process.pid, number)
    out, _ = process.communicate(timeout=30)
    assert (out.decode().split(), process.returncode) == ([number.name], 5)


def test_ctrl_c_on_a_terminal_reaches_the_command_once() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*WATCH, "--", sys.executable, "-c", COUNTS_SIGNALS], environment())
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    time.sleep(0.3)
    os.write(terminal, b"\x03")
    while True:
        try:
            piece = os.read(terminal, 1000)
        except OSError:  # the terminal has no other end any more
            break
        seen += piece
    assert seen.count(b"SIGINT") == 1
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def state(pid: int) -> str:
    """The kernel's letter for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_job_that_the_terminal_stops_is_stopped_as_a_whole_and_goes_on() -> None:
    shell = subprocess.Popen(
        [sys.executable, "-c", SHELL, *WATCH, "--", "sh", "-c", "sleep 1 & echo ready; wait; exit 4"],
        env=environment(), stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert shell.stdout is not None
    group = int(shell.stdout.readline())
    ready(shell)
    os.killpg(group, signal.SIGTSTP)
    assert within(10, lambda: state(group) == "T")
    os.killpg(group, signal.SIGCONT)
    assert shell.wait(30) == 4


def test_a_killed_watch_takes_its_own_processes_along_and_not_the_command(mark: str) -> None:
    name, _, value = mark.partition("=")
    process = start("sh", "-c", "echo ready; sleep 60", stdout=subprocess.PIPE, env=environment(**{name: value}))
    ready(process)
    time.sleep(0.5)
    process.kill()
    process.wait(10)

    def left() -> list[str]:
        return [Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] for pid in marked(mark)]

    assert within(5, lambda: sorted(left()) == ["sh", "sleep"]), left()


def test_off_means_that_nothing_is_around_the_command() -> None:
    done = subprocess.run(
        [*WATCH, "--", "sh", "-c", "echo $PPID; exit 6"], capture_output=True, env=environment(DDP_DOCTOR="off")
    )
    assert (done.returncode, int(done.stdout)) == (6, os.getpid())


def test_run_with_a_command_points_to_watch() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddp_doctor", "run", "--", "python", "my train.py"],
        capture_output=True,
        env=environment(),
    )
    assert done.returncode == 2
    assert b"ddp-doctor watch -- python 'my train.py'" in b" ".join(done.stderr.replace("│".encode(), b"").split())


def test_threads_as_ranks_are_named_and_all_of_the_job_is_ended(tmp_path: Path, mark: str) -> None:
    name, _, value = mark.partition("=")
    began = time.monotonic()
    process = start(
        "sh", "-c", f"setsid setsid sleep 500 & exec {sys.executable} {HANGS / 'threads_as_ranks.py'}",
        options=("--after", "2", "--kill", "-f", "json", "-o", str(tmp_path / "report")),
        env=environment(**{name: value, "DDP_DOCTOR_REPORT_DIR": str(tmp_path / "reports")}), stderr=subprocess.PIPE,
    )  # fmt: skip
    _, error = process.communicate(timeout=90)
    assert process.returncode == 124, error
    assert marked(mark) == []
    assert time.monotonic() - began < 60
    report = json.loads((tmp_path / "report").read_text())
    assert (report["verdict"]["finding"], report["verdict"]["confidence"]) == ("DDP103", "certain")
    assert report["tool"]["command"] == "watch"
    assert "initialisation has not finished 2 s after it began" in error.decode()
    assert {path.suffix for path in (tmp_path / "reports").iterdir()} == {".txt", ".json"}


def test_a_launcher_off_the_main_thread_whose_child_never_comes(tmp_path: Path, mark: str) -> None:
    name, _, value = mark.partition("=")
    (tmp_path / "ready").mkdir()
    process = start(
        sys.executable, str(HANGS / "relaunch.py"), options=("--after", "3", "--kill"), stderr=subprocess.PIPE,
        env=environment(**{name: value, "HOW": "queue", "READY": str(tmp_path / "ready")}),
    )  # fmt: skip
    _, error = process.communicate(timeout=90)
    assert process.returncode == 124
    assert b"error[DDP119]" in error
    assert marked(mark) == []


@pytest.mark.parametrize(
    ("after", "seconds"), [("5", "15"), pytest.param("20", "90", marks=pytest.mark.slow)], ids=["15 s", "90 s"]
)
@pytest.mark.parametrize(
    ("how", "said"),
    [("computes", b""), ("prints", b"waiting for the data\n"), ("reads", b"")],
    ids=["computes", "prints", "reads"],
)
def test_a_start_that_is_slow_and_works_is_not_called_hung(
    mark: str, how: str, said: bytes, after: str, seconds: str
) -> None:
    name, _, value = mark.partition("=")
    process = start(
        sys.executable, str(HANGS / "slow_start.py"), options=("--after", after, "--kill"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(**{name: value, "SECONDS": seconds, "HOW": how}),
    )  # fmt: skip
    out, error = process.communicate(timeout=200)
    assert process.returncode == 7, error
    # the two ranks write to one pipe, in either order
    last = out[-2 * len(b"rank 0 of 2 is through\n") :]
    assert out == said * int(seconds) + last
    assert sorted(last) == sorted(b"rank 0 of 2 is through\nrank 1 of 2 is through\n")
    assert b"not hung: rank 1 still works in slow_start.py" in error
    assert b"error[" not in error and b"the job hangs" not in error


TRAINING = [
    each
    for each in CONTROLS
    if all(part.script == "healthy.py" and not part.module and not part.host for part in each.parts) and not each.logged
]


@pytest.mark.slow
@pytest.mark.parametrize("control", TRAINING, ids=lambda control: control.name)
def test_output_and_exit_code_of_a_healthy_job_are_its_own(control: Fault) -> None:
    def run(*under: str) -> tuple[int, list[bytes], bytes]:
        ports = {PORT: str(free_port()), "{other}": str(free_port())}
        common = environment(SECONDS="8", OMP_NUM_THREADS="1")
        parts = [
            {
                "delay": part.delay,
                "argv": [sys.executable, str(HANGS / part.script)],
                "environ": common | {name: ports.get(value, value) for name, value in part.variables.items()},
                "output": "/dev/stdout",
            }
            for part in control.parts
        ]
        done = subprocess.run(
            [*under, sys.executable, str(HANGS / "start_all.py"), json.dumps(parts)],
            capture_output=True, env=environment(), timeout=150, check=False,
        )  # fmt: skip
        lines = done.stdout.splitlines(keepends=True)
        # two jobs side by side write in any order
        return done.returncode, sorted(lines) if control.name == "beside-another-job" else lines, done.stderr

    alone = run()
    assert alone[0] == 5 and len(alone[1]) == len(control.parts) and alone[2] == b""
    assert run(*WATCH, "--after", "2", "--kill", "--") == alone


def test_a_healthy_job_is_watched_in_silence(mark: str) -> None:
    name, _, value = mark.partition("=")
    process = start(
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(HANGS / "healthy.py"),
        options=("--after", "2"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=environment(**{name: value, "HOW": "slow", "OMP_NUM_THREADS": "1"}),
    )  # fmt: skip
    time.sleep(14)
    assert process.poll() is None
    process.terminate()
    out, _ = process.communicate(timeout=60)
    said = without_paths(out.decode())
    assert "ddp-doctor" not in said and "DDP" not in said
    assert within(5, lambda: marked(mark) == [])
