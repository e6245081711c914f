"""`run` started by launchers: the ranks meet, one report says what all of them show, and all end alike."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from jobs import free_port

pytestmark = pytest.mark.live
ENVIRON = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMPI", "PMI", "MASTER_"))},
    "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry),
}
RUN = (sys.executable, "-m", "ddp_doctor", "run")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")
C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, in which no file stays."""
    place = tmp_path / "tmp"
    place.mkdir()
    yield place
    assert [path for path in place.rglob("*") if not path.is_dir()] == []


def torchrun(
    room: Path, *options: str, wrapper: str = "", arguments: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The doctor as the ranks of torchrun; `wrapper` is what a shell does before, in each of them."""
    place = () if options[:2] == C10D else (f"--master-port={free_port()}",)
    inner = ("sh", "-c", f'{wrapper}; exec "$0" "$@"', *RUN, *arguments)
    return subprocess.run(
        [*TORCHRUN, *place, *options, "--no-python", *inner],
        env=ENVIRON | {"TMPDIR": str(room)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def reports(text: str) -> int:
    """How many reports begin in a text, each of which has to be whole."""
    begun, ended = text.count("ddp-doctor 0."), text.count(" checks, ")
    assert begun == ended, text
    return begun


@pytest.mark.parametrize("options", [(), C10D], ids=["static", "c10d"])
def test_a_healthy_job_is_one_report(room: Path, options: tuple[str, ...]) -> None:
    done = torchrun(room, *options, wrapper=":")
    assert done.returncode == 0, done.stderr
    assert reports(done.stdout) == 1
    assert "2 of 2 ranks merged" in " ".join(done.stdout.split())
    assert "no problem found" in done.stdout


def test_ranks_that_disagree_are_one_report_with_the_code_of_all(room: Path, tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    codes.mkdir()
    inner = f'"$0" "$@"; code=$?; echo $code > {codes}/$RANK; exit $code'
    done = torchrun(room, wrapper=f"if [ $RANK = 1 ]; then export WORLD_SIZE=3; fi; (exec 3>&1; {inner}); exit $?")
    assert reports(done.stdout) == 1, done.stderr
    assert "DDP117" in done.stdout and "rank 1: 3" in done.stdout
    assert {path.name: path.read_text().strip() for path in codes.iterdir()} == {"0": "1", "1": "1"}


def test_a_setting_of_one_rank_is_a_warning_that_names_it(room: Path) -> None:
    odd = "if [ $RANK = 1 ]; then export NCCL_SOCKET_IFNAME=eth9; fi"
    done = torchrun(room, wrapper=odd, arguments=("--fail-on", "warning", "--format", "json"))
    report = json.loads(done.stdout)
    found = next(each for each in report["findings"] if each["id"] == "DDP118")
    assert done.returncode == 1
    assert "NCCL_SOCKET_IFNAME" in found["summary"]
    assert "rank 1: eth9" in found["summary"]


def test_a_rank_that_never_comes_is_named_in_time() -> None:
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    wait = 12.0  # longer than the probes take
    started = time.monotonic()
    done = subprocess.run(
        [*RUN, "--wait", str(wait), "--format", "json"],
        env=ENVIRON | by_hand, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    report = json.loads(done.stdout)
    found = next(each for each in report["findings"] if each["id"] == "DDP101")
    assert found["ranks"] == [1]
    assert report["target"]["merged"] == "1 of 2 ranks came"
    assert wait - 3 < seconds < wait + 2


def test_alone_waits_for_nobody() -> None:
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [*RUN, "--alone", "--format", "json"],
        env=ENVIRON | by_hand, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["target"]["merged"] is None


@pytest.mark.slow
def test_rank_zero_alone_writes_the_file(room: Path, tmp_path: Path) -> None:
    done = torchrun(room, wrapper=":", arguments=("-o", str(tmp_path / "report.json"), "--format", "json"))
    assert done.returncode == 0 and done.stdout == ""
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.json"]
    assert len(json.loads((tmp_path / "report.json").read_text())["ranks"]) == 2


@pytest.mark.slow
def test_a_rank_that_cannot_reach_rank_zero_says_so_in_one_line(tmp_path: Path) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text('#!/bin/sh\n"$@"\nexit $?\n')
    launcher.chmod(0o755)
    # 192.0.2.0/24 is nobody's address
    rank = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "MASTER_ADDR": "192.0.2.1",
        "MASTER_PORT": "29500",
    }
    done = subprocess.run(
        [str(launcher), *RUN, "--wait", "4", "-o", str(tmp_path / "report")],
        env=ENVIRON | rank, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.stdout.count("\n") == 1, done.stdout
    assert done.stdout.startswith("rank 1 of 2 on ") and "not merged with rank 0: DDP" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"report.rank1", "mpirun"}


def test_variables_in_a_shell_wait_for_nobody_unless_told_to() -> None:
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [*RUN, "--format", "json"], env=ENVIRON | by_hand, capture_output=True, text=True, timeout=60, check=False
    )
    report = json.loads(done.stdout)
    assert report["target"]["merged"] is None and report["ranks"] == []
    assert [each["id"] for each in report["findings"] if each["severity"] != "note"] == []


def test_torchrun_that_is_terminated_still_brings_the_whole_report(room: Path) -> None:
    process = subprocess.Popen(
        [*TORCHRUN, f"--master-port={free_port()}", "-m", "ddp_doctor", "run"],
        env=ENVIRON | {"TMPDIR": str(room)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(children.read_text().split()) < 2:
        time.sleep(0.05)
    time.sleep(2.0)  # they have met, and the trial ranks import torch
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert reports(out) == 1, out + errors
    assert "2 of 2 ranks" in " ".join(out.split())


@pytest.mark.slow
def test_twenty_launches_with_a_finding_are_twenty_reports(room: Path) -> None:
    for number in range(20):
        restarts = ("--max-restarts=1",) if number % 2 else ()
        options = (*C10D, *restarts) if number % 4 > 1 else restarts
        done = torchrun(room, *options, wrapper="if [ $RANK = 1 ]; then export WORLD_SIZE=3; fi")
        assert reports(done.stdout) == 1, (number, done.stdout, done.stderr)
        assert "DDP117" in done.stdout and "error found: " in done.stdout, (number, done.stdout)
        assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.skipif(bool(slurm.missing()), reason=f"not installed: {slurm.missing()}")
def test_two_nodes_of_slurm_are_one_report(tmp_path: Path) -> None:
    with slurm.cluster(tmp_path) as first:
        command = [*first, "env", f"PYTHONPATH={ENVIRON['PYTHONPATH']}", "srun", "--nodes=2", "--ntasks=4", *RUN]
        command += ["--failing-nodes", str(tmp_path / "failing")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert reports(done.stdout) == 1, done.stdout + done.stderr
    assert "4 of 4 ranks merged over a TCP port" in " ".join(done.stdout.split()), done.stdout
    assert all(node in done.stdout for node in slurm.NODES)
    assert (tmp_path / "failing").read_bytes() == b""
