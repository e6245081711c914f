"""Formats on the command line: what is made for others has stand-ins, and every stream can carry it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHERS = ("markdown", "html", "github", "junit", "sarif")
SCRIPT = """import threading, torch.distributed as dist
def worker(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
for rank in range(2):
    threading.Thread(target=worker, args=(rank,)).start()
"""


def ddp_doctor(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One call in a folder."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)}
    environ.pop("GITHUB_WORKSPACE", None)
    command = [sys.executable, "-m", "ddp_doctor", *arguments]
    return subprocess.run(command, cwd=cwd, env=environ | variables, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of a user of that name, with a script that hangs and a log that names a host and a secret."""
    folder = tmp_path / "home" / "quimby" / "répo"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    key = "/default_pg/{}//cpu//0/{}"
    (folder / "rank0.log").write_text(
        f"host=blueocean17 WANDB_API_KEY=0123456789abcdef DistStoreError: wait timeout after 1000ms, keys: {key.format(1, 0)}\n"
        f"host=blueocean17 DistStoreError: wait timeout after 1000ms, keys: {key.format(0, 1)}\n"
    )
    return folder


@pytest.mark.parametrize("format", OTHERS)
def test_what_is_made_for_others_names_nobody(format: str, home: Path) -> None:
    done = ddp_doctor("triage", str(home / "rank0.log"), "--format", format, cwd=home)
    assert done.returncode == 1 and "DDP103" in done.stdout, done.stderr
    for name in ("quimby", "blueocean17", "0123456789abcdef"):
        assert name not in done.stdout
    kept = ddp_doctor("triage", str(home / "rank0.log"), "--format", format, "--no-redact", cwd=home)
    assert "blueocean17" in kept.stdout


def test_files_are_named_from_the_workspace_also_with_stand_ins(home: Path) -> None:
    done = ddp_doctor("lint", str(home / "train.py"), "--format", "github", cwd=home.parent)
    assert done.stdout.startswith("::error file=répo/train.py,line="), done.stdout
    done = ddp_doctor("lint", str(home / "train.py"), "--format", "github", cwd=Path("/"), GITHUB_WORKSPACE=str(home))
    assert done.stdout.startswith("::error file=train.py,line="), done.stdout


def test_sarif_brings_the_page(home: Path) -> None:
    done = ddp_doctor("lint", "train.py", "--format", "sarif", cwd=home)
    (rule,) = json.loads(done.stdout)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["help"]["text"].startswith("# DDP103 thread-launch - ")


@pytest.mark.parametrize("format", ["text", "json", *OTHERS])
def test_a_stream_of_ascii_carries_it(format: str, home: Path) -> None:
    done = ddp_doctor("lint", str(home), "--format", format, cwd=home, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert done.returncode == 1 and not done.stderr
    assert (done.stdout.isascii() and "po/train.py" in done.stdout) if format == "text" else "répo" in done.stdout
