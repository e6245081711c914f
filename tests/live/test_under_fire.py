"""The doctor where little works: no room, no streams, no time, workers that are stopped or killed, another doctor beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import hanging, wait_for_stack

pytestmark = pytest.mark.live
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for mount namespaces")
DOCTOR = (sys.executable, "-m", "ddp_doctor")
ENVIRON = {
    **{
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MASTER_", "RANK", "WORLD_SIZE", "NCCL"))
    },
    "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry),
}
START = 4.0
"""Seconds that starting Python and reading the modules may take on a busy machine, beside the budget."""
SCRIPT = """import threading, torch.distributed as dist
def worker(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
for rank in range(2):
    threading.Thread(target=worker, args=(rank,)).start()
"""
LOG = """DistStoreError: wait timeout after 12000ms, keys: /default_pg/1//cpu//0/0
DistStoreError: wait timeout after 12000ms, keys: /default_pg/0//cpu//0/1
"""


@pytest.fixture
def scene(tmp_path: Path) -> dict[str, str]:
    """What commands can be given: a log and a script."""
    (tmp_path / "rank0.log").write_text(LOG)
    (tmp_path / "train.py").write_text(SCRIPT)
    return {"log": str(tmp_path / "rank0.log"), "script": str(tmp_path / "train.py"), "pid": str(os.getpid())}


@pytest.fixture(scope="module")
def hung() -> Iterator[int]:
    """A job of two ranks as threads."""
    with hanging("threads_as_ranks.py") as process:
        wait_for_stack(process.pid, "training_func", 2)
        yield process.pid


def shell(line: str, *, folder: Path, mounts: str = "") -> subprocess.CompletedProcess[str]:
    """A line of shell, where `mounts` is not empty with mounts of its own."""
    command = ["sh", "-c", f"{mounts}\n{line}"]
    if mounts:
        command = ["unshare", "--mount", *command]
    return subprocess.run(command, cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=120, check=False)


@needs_root
def test_a_full_disk_costs_neither_the_report_nor_the_one_before(scene: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    line = f"{' '.join(DOCTOR)} triage {scene['log']} --format html -o full/report.html; code=$?"
    line += "; ls -A full; cat full/report.html; exit $code"
    mounts = "set -e; mount -t tmpfs -o size=8k tmpfs full; echo the one before > full/report.html; set +e"
    done = shell(line, folder=tmp_path, mounts=mounts)
    assert done.returncode == 3 and "No space left on device" in done.stderr
    assert "DDP103" in done.stdout and "</html>\nreport.html\nthe one before\n" in done.stdout


@needs_root
def test_no_room_anywhere(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    full = (
        "set -e; mount -t tmpfs -o size=4k tmpfs full; mount --bind full /dev/shm; set +e; cat /dev/zero 2>&- > full/x"
    )
    line = f"TMPDIR=$PWD/full HOME=$PWD/full {' '.join(DOCTOR)} run --format json"
    done = shell(line, folder=tmp_path, mounts=full)
    report = json.loads(done.stdout)
    assert done.returncode in (0, 1) and report["verdict"]["status"] in ("healthy", "problem", "unknown")
    assert {finding["id"] for finding in report["findings"] if finding["severity"] == "error"} <= {"DDP405"}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str, scene: dict[str, str], tmp_path: Path) -> None:
    for command, code in (("run", 0), (f"triage {scene['log']}", 1), (f"lint {scene['script']}", 1)):
        done = shell(f"{' '.join(DOCTOR)} {command} --format json -o out.json {closed}", folder=tmp_path)
        assert done.returncode == code, f"{command} {closed}: {done.stderr}"
        assert json.loads((tmp_path / "out.json").read_text())["schema"] == "ddp-doctor/report/1"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("budget", ["0.01", "1"])
@pytest.mark.parametrize("command", ["run", "attach {pid}", "attach --all", "triage {log}", "lint {script}", "bundle"])
def test_any_budget_is_kept(command: str, budget: str, scene: dict[str, str], hung: int, tmp_path: Path) -> None:
    words = command.format(**scene | {"pid": str(hung)}).split()
    words += ["-o", str(tmp_path / "out.tgz")] if command == "bundle" else ["--format", "json"]
    started = time.monotonic()
    done = subprocess.run(
        [*DOCTOR, *words, "--timeout", budget], env=ENVIRON, capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - started <= float(budget) + START
    assert done.returncode in (0, 1, 4, 5), done.stderr
    assert "Traceback" not in done.stderr
    if command != "bundle":
        report = json.loads(done.stdout)
        certain = {each["id"] for each in report["findings"] if each["severity"] == "error"}
        if "--all" not in command:  # other jobs of this machine have causes of their own
            assert certain <= ({"DDP103"} if command != "run" else set()), "too little time became a cause"
        assert report["verdict"]["status"] != "healthy" or budget != "0.01"


def workers_of(pid: int) -> set[int]:
    """Workers of a doctor and what they forked, once they are programs of their own.

    Before its exec a child of vfork holds its parent up: whoever stops it there stops the doctor.
    """
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    grown = {pid}
    while grown:
        grown = {child for child, parent in parents.items() if parent in grown} - found
        found |= grown
    return {worker for worker in found if _is_worker(worker)}


def _is_worker(pid: int) -> bool:
    try:
        return b"workers/guard.py" in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def under(treatment: Callable[[int], None], *words: str, seconds: float) -> tuple[dict[str, Any], int, set[int]]:
    """The report and exit code of a command whose workers are each treated as they appear, and the PIDs of all."""
    process = subprocess.Popen(
        [*DOCTOR, *words, "--format", "json", "--timeout", str(seconds)],
        env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    started, seen = time.monotonic(), set[int]()
    while process.poll() is None and time.monotonic() - started < seconds + START:
        for worker in workers_of(process.pid) - seen:
            seen.add(worker)
            try:
                treatment(worker)
            except ProcessLookupError:
                pass
        time.sleep(0.005)
    assert process.poll() is not None, f"still running after {seconds} s and {START} s"
    out, errors = process.communicate()
    assert "Traceback" not in errors
    return json.loads(out), process.returncode, seen


def alive(pids: set[int]) -> set[int]:
    """Those that run; a stopped one counts."""
    found = set()
    for pid in pids:
        try:
            state = Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.add(pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("command", ["run", "attach {pid}", "triage {log}", "lint {script}"])
def test_workers_that_are_stopped_or_killed(
    command: str, number: signal.Signals, scene: dict[str, str], hung: int
) -> None:
    words = command.format(**scene | {"pid": str(hung)}).split()
    report, code, workers = under(lambda pid: os.kill(pid, number), *words, seconds=6.0)
    assert code in (0, 1, 4, 5) and report["schema"] == "ddp-doctor/report/1"
    errors = [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert {finding["id"] for finding in errors} <= {"DDP103", "DDP507"}
    assert report["verdict"]["status"] != "healthy" or not workers
    assert not alive(workers)


def test_two_doctors_at_once(hung: int) -> None:
    processes = [
        subprocess.Popen([*DOCTOR, *words, "--format", "json"], env=ENVIRON, stdout=subprocess.PIPE, text=True)
        for words in (("run",), ("run",), ("attach", str(hung)), ("attach", str(hung)))
    ]
    reports = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 1, 1]
    assert [report["verdict"]["finding"] for report in reports] == [None, None, "DDP103", "DDP103"]
