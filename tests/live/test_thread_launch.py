"""The same finding from a live hang, from saved dumps of it, and from the log it leaves when its timeout fires."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jobs import PY_SPY, doctor, hanging, wait_for_stack

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One hang: the report of attaching to it, dumps of it, and its log."""
    folder = tmp_path_factory.mktemp("threads")
    log = folder / "train.log"
    with hanging("threads_as_ranks.py", "8", log=log) as job:
        wait_for_stack(job.pid, "_new_process_group_helper", threads=2)
        attached = doctor("attach", str(job.pid))
        for name, flags in {"dump.json": ("--json", "--locals"), "dump.txt": ("--locals",), "bare.txt": ()}.items():
            with open(folder / name, "wb") as file:
                subprocess.run([PY_SPY, "dump", *flags, "--pid", str(job.pid)], stdout=file, check=True)
        alive_after = job.poll() is None
        job.wait(60)
    return {"folder": folder, "attached": attached, "pid": job.pid, "alive_after": alive_after}


def the_finding(report: dict[str, Any]) -> dict[str, Any]:
    """The verdict's finding, which must be the only one."""
    assert report["verdict"]["status"] == "problem"
    assert [finding["id"] for finding in report["findings"]] == [report["verdict"]["finding"]]
    finding: dict[str, Any] = report["findings"][0]
    assert (finding["id"], finding["name"], finding["severity"]) == ("DDP103", "thread-launch", "error")
    assert any(
        "torch.multiprocessing.spawn(training_func, nprocs=2)" in line for line in finding["fixes"][0]["commands"]
    )
    return finding


def test_live(saved: dict[str, Any]) -> None:
    code, report = saved["attached"]
    finding = the_finding(report)
    assert code == 1 and saved["alive_after"]
    assert finding["confidence"] == "certain" and finding["ranks"] == [0, 1]
    assert f"PID {saved['pid']}" in finding["summary"]
    assert all(re.search(r"threads_as_ranks.py:\d+ training_func", item["value"]) for item in finding["evidence"])


@pytest.mark.parametrize(
    ("dump", "confidence"), [("dump.json", "certain"), ("dump.txt", "certain"), ("bare.txt", "likely")]
)
def test_dump(saved: dict[str, Any], dump: str, confidence: str) -> None:
    code, report = doctor("triage", str(saved["folder"] / dump))
    finding = the_finding(report)
    assert code == 1
    assert finding["confidence"] == confidence  # a dump without arguments does not tell the ranks
    assert f"PID {saved['pid']}" in finding["summary"]


def test_log(saved: dict[str, Any]) -> None:
    log: Path = saved["folder"] / "train.log"
    code, report = doctor("triage", str(log))
    finding = the_finding(report)
    assert code == 1
    assert finding["confidence"] == "likely"  # two processes may share one log
    assert finding["summary"].endswith(str(log))
