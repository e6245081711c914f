"""`bundle` as a person calls it: of a hung job, of this node, of logs; and what others find in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import doctor, hanging, wait_for_stack

pytestmark = [pytest.mark.live, pytest.mark.slow]


def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddp_doctor", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_hung_process_is_told_from_its_bundle_as_from_itself(tmp_path: Path) -> None:
    file = str(tmp_path / "job.bundle")
    with hanging("threads_as_ranks.py") as process:
        wait_for_stack(process.pid, "init_process_group", 2)
        _, live = doctor("attach", str(process.pid))
        made = call("bundle", "-o", file, "--from", str(process.pid))
    assert made.returncode == 0, made.stderr
    _, later = doctor("triage", file)
    assert later["verdict"]["finding"] == live["verdict"]["finding"] == "DDP103"
    assert later["verdict"]["confidence"] == live["verdict"]["confidence"]
    assert [row["stage"] for row in later["ranks"]] == [row["stage"] for row in live["ranks"]]
    assert os.uname().nodename not in json.dumps(later) or os.uname().nodename in ("localhost", "vm", "host")


def test_this_node_is_told_from_its_bundle_as_from_itself(tmp_path: Path) -> None:
    file = str(tmp_path / "node.bundle")
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": "29500"}
    live = json.loads(call("run", "--format", "json", **variables).stdout)
    made = call("bundle", "-o", file, **variables)
    assert made.returncode == 0, made.stderr
    code, later = doctor("triage", file)
    assert later["verdict"]["status"] == live["verdict"]["status"] == "problem"
    assert later["verdict"]["finding"] == live["verdict"]["finding"]
    assert code == 1
    shown = call("bundle", "inspect", file).stdout
    assert "environment variables inside: " in shown and "MASTER_ADDR" in shown
    assert later["redacted"]["hosts"] >= 1


def test_what_bundle_refuses(tmp_path: Path) -> None:
    assert call("bundle").returncode == 2
    assert call("bundle", "-o", str(tmp_path / "x"), "--from", str(tmp_path / "absent")).returncode == 5
    assert not (tmp_path / "x").exists()
    assert call("bundle", "inspect", __file__).returncode == 5
