# ruff: noqa: E501
"""`triage` as a person calls it: logs, folders, scripts beside logs, standard input, and what is not worth reading."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import doctor

pytestmark = pytest.mark.live

SEED = """\
Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2
host:3886:3998 [1] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.
host:3886:3998 [1] NCCL INFO Could not enable P2P between dev 0(=3000) and dev 1(=88000)
host:3812:3996 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.
"""
SCRIPT = """\
import threading

from pytorch_lightning import Trainer


def training_func():
    trainer = Trainer(devices=[0, 1], accelerator="gpu", strategy="ddp", num_nodes=1)
    trainer.fit(model)


t1 = threading.Thread(target=training_func, name="target")
t1.start()
"""
FULL = "node-a:1:2 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)\n"


def test_the_first_report_alone_is_undecided(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(SEED)
    code, report = doctor("triage", str(tmp_path))
    assert code == 4
    assert (report["verdict"]["status"], report["verdict"]["candidates"]) == ("unknown", ["DDP103"])
    assert report["verdict"]["separate"]["commands"][0] == "ddp-doctor attach PID"
    assert {finding["severity"] for finding in report["findings"]} == {"note"}
    assert sorted(row["pid"] for row in report["ranks"]) == [3812, 3886]


def test_with_its_script_it_is_the_thread(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(SEED)
    (tmp_path / "train.py").write_text(SCRIPT)
    _, report = doctor("triage", str(tmp_path / "job.log"), str(tmp_path / "train.py"))
    assert (report["verdict"]["status"], report["verdict"]["finding"]) == ("problem", "DDP103")
    (finding,) = [finding for finding in report["findings"] if finding["id"] == "DDP103"]
    assert finding["severity"] == "warning"


def test_standard_input_and_what_it_may_do_to_a_terminal(tmp_path: Path) -> None:
    nasty = FULL.replace("NCCL WARN Error", "NCCL WARN \x1b]0;owned\x07\x1b[2JError").encode()
    done = subprocess.run(
        [sys.executable, "-m", "ddp_doctor", "triage", "-", "--color", "always"],
        input=nasty,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1 and b"DDP405" in done.stdout
    assert b"\x1b]0" not in done.stdout and b"\x1b[2J" not in done.stdout


def test_nothing_to_examine(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "program").write_bytes(b"\x7fELF" + bytes(8192))
    code, report = doctor("triage", str(tmp_path))
    assert (code, report["verdict"]["status"]) == (5, "nothing")
    code, report = doctor("triage", str(tmp_path / "absent"))
    assert (code, report["verdict"]["status"]) == (5, "nothing")


def test_many_files(tmp_path: Path) -> None:
    for rank in range(64):
        (tmp_path / f"rank{rank}.log").write_text(SEED * 20_000 if rank < 2 else SEED)
    (tmp_path / "rank17.log").write_text(SEED + FULL)
    code, report = doctor("triage", str(tmp_path))
    assert (code, report["verdict"]["finding"], report["verdict"]["confidence"]) == (1, "DDP405", "certain")
    assert report["findings"][0]["evidence"][0]["source"].endswith("rank17.log:5")


def test_progress_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    for rank in range(40):
        (tmp_path / f"rank{rank}.log").write_text(SEED * 4_000)
    (tmp_path / "rank17.log").write_text(SEED + FULL)
    command = [sys.executable, "-m", "ddp_doctor", "triage", str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
    terminal, inside = pty.openpty()
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=inside, stdin=inside) as process:
        os.close(inside)
        shown = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(terminal)
    assert process.returncode == 1
    assert b"of 40 files read" in shown
    assert shown.endswith(b"\r\x1b[K")  # the line is wiped before the report
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert b"files read" not in done.stderr + done.stdout


def test_a_manual_is_not_triaged(tmp_path: Path) -> None:
    page = next(iter(sorted((Path(__file__).parents[2] / "checks").rglob("shm_small.md"))))
    (tmp_path / "README.md").write_text(page.read_text(encoding="utf-8"))
    code, report = doctor("triage", str(tmp_path))
    assert (code, report["verdict"]["status"]) == (5, "nothing")


def test_this_machines_proc_is_not_triaged() -> None:
    code, report = doctor("triage", "/proc/self")
    assert (code, report["verdict"]["status"]) == (5, "nothing")


def test_a_dump_in_own_code_is_a_row_beside_one_in_init(tmp_path: Path) -> None:
    head = 'Process {0}: python train.py\n\nThread {0} (idle): "MainThread"\n'
    own, init = head.format(101), head.format(102)
    own += "    connect_with_retry (train.py:8)\n    <module> (train.py:33)\n"
    init += "    init_process_group (torch/distributed/distributed_c10d.py:1700)\n    <module> (train.py:33)\n"
    (tmp_path / "own.txt").write_text(own)
    (tmp_path / "init.txt").write_text(init)
    code, report = doctor("triage", str(tmp_path))
    assert (code, report["verdict"]["candidates"]) == (4, ["DDP604"])
    assert {row["pid"]: row["where"] for row in report["ranks"]} == {
        101: "train.py:8 connect_with_retry",
        102: "train.py:33 <module>",
    }
