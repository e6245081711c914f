"""Reports of many ranks on one pipe, and the file of the nodes at fault."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.turn import turn
from ddp_doctor.facts.report import ReportedRank
from ddp_doctor.model import Confidence, Finding, RankRow, Report, Severity, Target, Tool, Verdict
from ddp_doctor.readers.report import read_reports

RANKS = 64


def report(*findings: Finding, hosts: tuple[str, ...] = ("gpu-1", "gpu-2"), rank: int = 0, where: str = "") -> Report:
    return Report(
        tool=Tool(version="0", command="run", seconds=0.1),
        target=Target(hosts=hosts),
        verdict=Verdict(status="problem" if findings else "healthy"),
        ranks=(RankRow(rank=rank, where=where),),
        findings=findings,
    )


def finding(*hosts: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(
        id="DDP503", name="host-limits", severity=severity, confidence=Confidence.CERTAIN, summary="s", because="b",
        hosts=hosts,
    )  # fmt: skip


def output(**changes: object) -> Output:
    values = {"format": "json", "path": None, "colour": "never", "verbose": 0, "quiet": True, "fail_on": "error"}
    return Output(**{**values, "strict": False, "needs_verdict": False, "started": time.monotonic(), **changes})  # type: ignore[arg-type]


def writer(rank: int, pipe: int) -> None:
    """Be a rank whose report is larger than any pipe's buffer."""
    os.dup2(pipe, 1)
    sys.stdout = os.fdopen(1, "w")
    out = output()
    out.of_rank(rank)
    out.write(report(rank=rank, where="x" * 200_000))
    os._exit(0)


def test_reports_of_64_ranks_on_one_pipe_are_whole_and_a_line_each() -> None:
    reading, writing = os.pipe()
    pids = []
    for rank in range(RANKS):
        pid = os.fork()
        if not pid:
            writer(rank, writing)
        pids.append(pid)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * RANKS
    lines = text.splitlines()
    assert len(lines) == RANKS
    ranks = [fact.row.rank for fact in read_reports(text, "stdin") if isinstance(fact, ReportedRank)]
    assert sorted(rank for rank in ranks if rank is not None) == list(range(RANKS))


def test_triage_reads_the_reports_of_all_ranks_from_one_pipe(tmp_path: Path) -> None:
    text = "".join(f"{report(finding('gpu-2'), rank=rank).to_json()}\n" for rank in range(RANKS))
    command = [sys.executable, "-m", "ddp_doctor", "triage", "-", "--format", "json"]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, input=text, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    ranks = [fact.row.rank for fact in read_reports(done.stdout, "") if isinstance(fact, ReportedRank)]
    assert sorted(rank for rank in ranks if rank is not None) == list(range(RANKS))


def test_a_writer_that_never_ends_does_not_keep_the_others_from_writing() -> None:
    _, writing = os.pipe()
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        with turn(writing):
            os.write(told, b"x")
            time.sleep(60)
    os.read(ready, 1)
    started = time.monotonic()
    with turn(writing, seconds=0.3):
        waited = time.monotonic() - started
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert 0.3 <= waited < 2


@pytest.mark.parametrize(
    ("findings", "hosts", "said"),
    [
        ((finding("gpu-2"), finding("gpu-1", severity=Severity.WARNING)), ("gpu-1", "gpu-2"), "gpu-2\n"),
        ((finding("gpu-1"), finding("gpu-3")), ("gpu-1", "gpu-2", "gpu-3"), "gpu-1,gpu-3\n"),
        ((finding("gpu-1", "gpu-2"),), ("gpu-1", "gpu-2"), ""),
        ((finding("gpu-1"),), ("gpu-1",), "gpu-1\n"),
        ((), ("gpu-1", "gpu-2"), ""),
    ],
    ids=["one", "two", "what all share is no node's", "a node alone", "none"],
)
def test_failing_nodes_are_written_as_srun_takes_them(
    findings: tuple[Finding, ...], hosts: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodes"
    output(failing_nodes=file, path=tmp_path / "report").write(report(*findings, hosts=hosts))
    assert file.read_text() == said
    assert capsys.readouterr().out == ""
