"""`@pytest.mark.ddp_watch`: a test whose ranks hang fails with the cause, and what it started is gone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import free_port, without_paths

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
TESTS = """
import multiprocessing, os, subprocess, sys, time
from datetime import timedelta
import pytest

PORT = {port}


def rank(rank, size):
    import torch.distributed as dist

    store = f"tcp://127.0.0.1:{{PORT}}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=600))
    dist.barrier()
    dist.destroy_process_group()


def command(number, size):
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {{os.path.dirname(__file__)!r}});"
            f"from {{__name__}} import rank; rank({{number}}, {{size}})"]


def start(number, size):
    process = multiprocessing.get_context("spawn").Process(target=rank, args=(number, size))
    process.start()
    return process

"""
MISSING = "hung in initialisation: [DDP101] rank {} of world size {} is not running on this node"


def run(folder: Path, body: str, *options: str, **variables: str) -> tuple[int, str]:
    """Exit code and output of pytest on these tests, in a process of its own."""
    (folder / "test_ranks.py").write_text(TESTS.format(port=free_port()) + body)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "ddp_doctor.pytest_plugin", "-p", "no:cacheprovider", "-v", *options],
        cwd=folder, capture_output=True, text=True, timeout=150, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200", "OMP_NUM_THREADS": "1"} | variables,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def summary(out: str) -> str:
    """The section of the whole reports."""
    assert len(re.findall(r"^=+ ddp-doctor =+$", out, re.MULTILINE)) == 1, out
    return re.split(r"^=+ .* =+$", re.split(r"^=+ ddp-doctor =+$", out, flags=re.MULTILINE)[1], flags=re.MULTILINE)[0]


def test_spawned_ranks_are_examined_and_killed_and_the_next_test_runs(tmp_path: Path) -> None:
    body = """
@pytest.fixture(scope="session")
def server():
    server = subprocess.Popen(["sleep", "600"])
    yield server
    assert server.poll() is None
    server.kill()
    server.wait()


@pytest.mark.ddp_watch(4)
def test_missing(server):
    import torch.multiprocessing as mp
    mp.spawn(rank, (3,), nprocs=2)


def test_next():
    left = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "sleep 600" in left and "spawn_main" not in left and "beside_test" not in left, left
"""
    code, out = run(tmp_path, body)
    assert code == 1 and "1 failed, 1 passed" in out, out
    assert f"Failed: {MISSING.format(2, 3)}" in out
    told = summary(out)
    assert "test_ranks.py::test_missing" in told and "error[DDP101]" in told and "needs: job restart" in told
    assert len(re.findall(r"^ [01] .* init_process_group <- test_ranks.py|^ 2 .* not-started", told, re.MULTILINE)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "waits",
    [
        "start(0, 2).join()",
        "subprocess.Popen(command(0, 2)).wait()",
        "process = start(0, 2); multiprocessing.get_context('spawn').Queue().get()",
    ],
    ids=["join", "wait", "queue"],
)
def test_the_test_is_ended_wherever_it_waits(tmp_path: Path, waits: str) -> None:
    code, out = run(tmp_path, f"@pytest.mark.ddp_watch(3)\ndef test_waits():\n    {waits}\n")
    assert code == 1 and "1 failed" in out, out
    assert MISSING.format(1, 2) in out and "error[DDP101]" in summary(out)


def test_a_test_that_is_a_rank_itself(tmp_path: Path) -> None:
    body = """
@pytest.mark.ddp_watch(3)
def test_rank_0():
    rank(0, 2)


def test_next():
    pass
"""
    code, out = run(tmp_path, body)
    assert code == 1 and "1 failed, 1 passed" in out, out
    assert f"Failed: {MISSING.format(1, 2)}" in out and "error[DDP101]" in summary(out)


def test_a_test_that_does_not_leave_c_code_ends_the_run_in_good_order(tmp_path: Path) -> None:
    body = """
def test_before():
    pass


@pytest.mark.ddp_watch(2)
def test_no_store():
    print("said before")
    rank(1, 2)


def test_next():
    pass
"""
    code, out = run(tmp_path, body, "--junitxml=out.xml")
    assert code == 1 and "1 failed, 1 passed" in out, out
    assert MISSING.format(0, 2) in out and "the test does not leave C code, so the tests end here" in out
    assert "said before" in out and "error[DDP101]" in summary(out)
    assert "DDP101" in (tmp_path / "out.xml").read_text()


@pytest.mark.slow
def test_a_fixture_that_hangs_is_an_error_with_the_cause(tmp_path: Path) -> None:
    body = """
@pytest.fixture
def group():
    rank(0, 2)


@pytest.mark.ddp_watch(3)
def test_with_group(group):
    pass
"""
    code, out = run(tmp_path, body)
    assert code == 1 and "1 error" in out and MISSING.format(1, 2) in out, out
    assert "error[DDP101]" in summary(out)


def test_what_does_not_hang_is_left_alone(tmp_path: Path) -> None:
    body = """
@pytest.mark.ddp_watch(2)
def test_trains():
    both = [start(number, 2) for number in range(2)]
    for each in both:
        each.join()
    assert [each.exitcode for each in both] == [0, 0]


@pytest.mark.ddp_watch(1)
def test_long():
    time.sleep(4)


@pytest.mark.ddp_watch(seconds=60)
def test_own_failure():
    assert 1 == 2
"""
    code, out = run(tmp_path, body)
    assert code == 1 and "1 failed, 2 passed" in out, out
    assert (
        "assert 1 == 2" in out
        and "ddp-doctor" not in without_paths(out).replace("ddp-doctor-", "").partition("test session")[2]
    ), out


@pytest.mark.slow
def test_under_xdist_the_reports_reach_the_summary(tmp_path: Path) -> None:
    body = """
@pytest.mark.ddp_watch(4)
def test_missing():
    start(0, 2).join()


def test_next():
    pass
"""
    code, out = run(tmp_path, body, "-n", "1")
    assert code == 1 and "1 failed, 1 passed" in out, out
    assert "error[DDP101]" in summary(out)


@pytest.mark.parametrize("arguments", ["0", "'60'", "1, 2", "minutes=1"])
def test_wrong_arguments_are_named(tmp_path: Path, arguments: str) -> None:
    code, out = run(tmp_path, f"@pytest.mark.ddp_watch({arguments})\ndef test_it():\n    pass\n")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "test_ranks.py::test_it: ddp_watch takes one number of seconds above 0, as in ddp_watch(60)" in out


def test_without_the_mark_nothing_is_loaded(tmp_path: Path) -> None:
    body = """
def test_modules():
    ours = [name for name in sys.modules if name.startswith("ddp_doctor")]
    assert sorted(ours) == ["ddp_doctor", "ddp_doctor.pytest_plugin"], ours
"""
    code, out = run(tmp_path, body)
    assert code == 0, out


def test_off_means_that_nothing_watches(tmp_path: Path) -> None:
    body = """
@pytest.mark.ddp_watch(0.2)
def test_off():
    import signal, threading
    time.sleep(1)
    assert threading.active_count() == 1 and signal.getsignal(signal.SIGURG) is signal.SIG_DFL
"""
    code, out = run(tmp_path, body, DDP_DOCTOR="off")
    assert code == 0, out


@pytest.mark.parametrize("again", [(), ("-p", "ddp_doctor.pytest_plugin")], ids=["installed", "installed-and-named"])
def test_an_installed_plugin_is_there_once(tmp_path: Path, again: tuple[str, ...]) -> None:
    table = re.search(r'^\[project.entry-points.pytest11\]\n"(\S+)" = "(\S+)"', PROJECT.read_text(), re.MULTILINE)
    assert table is not None
    installed = tmp_path / "installed" / "a_copy-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: a-copy\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{table[1]} = {table[2]}\n")
    (tmp_path / "test_it.py").write_text("import pytest\n\n@pytest.mark.ddp_watch(60)\ndef test_it():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--strict-markers", "-p", "no:cacheprovider", *again],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(installed.parent), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
