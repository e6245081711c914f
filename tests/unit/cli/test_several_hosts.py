"""`attach` on other hosts: what names them, and what becomes of those that answer something else than facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddp_doctor.cli.ways import Misspelt, SlurmJob, named_hosts, named_job

FACTS = '{"schema":"ddp-doctor/facts/1","looked_for":[]}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The folder that stands first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""Writes last the KiB that the largest process of a command had; the tests' own process may be larger."""


def attach(folder: Path, *arguments: str, under: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        [*([sys.executable, "-c", under] if under else []), sys.executable, "-m", "ddp_doctor", "attach", *arguments],
        env=environ | variables, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h1, h2,h1", ["h1", "h2"]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("login,gpu-[08-10,12].cluster", ["login", "gpu-08.cluster", "gpu-09.cluster", "gpu-10.cluster", "gpu-12.cluster"]),
        ("me@node-9[1-2]", ["me@node-91", "me@node-92"]),
        ("::1", ["::1"]),
    ],
)  # fmt: skip
def test_hosts_are_named_as_lists_and_as_slurm_does(text: str, hosts: list[str]) -> None:
    assert named_hosts(text) == hosts


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--hosts", "", "no host is named"),
        ("--hosts", " ,", "no host is named"),
        ("--hosts", "h1 h2", "'h1 h2' is no name of a host"),
        ("--hosts", "h1,node[1-3", "'h1,node[1-3' is no list of hosts"),
        ("--hosts", "h1,node[3-1]", "the smaller one first"),
        ("--hosts", "node[1-999999]", "more than 10000 hosts"),
        ("--slurm-job", "", "no job is named"),
        ("--slurm-job", "abc;x", "'abc;x' is no id of a Slurm job"),
        ("--slurm-job", "12,13", "'12,13' is no id of a Slurm job"),
    ],
)
def test_what_names_nothing_is_a_usage_error(path: Path, option: str, value: str, words: str) -> None:
    done = attach(path, option, value)
    assert done.returncode == 2 and not done.stdout
    said = " ".join(done.stderr.replace("\u2502", " ").split())
    assert option in said and words in said


@pytest.mark.parametrize("text", ["1_", "_1", "1.", "1.x", "1+", "-1", "\u0661"])
def test_what_is_no_id_of_a_job(text: str) -> None:
    with pytest.raises(Misspelt, match="is no id of a Slurm job"):
        named_job(text)


def test_ids_of_jobs_have_tasks_components_and_steps() -> None:
    assert named_job("4711") == SlurmJob(id="4711")
    assert named_job(" 4711_3 ") == SlurmJob(id="4711_3")
    assert named_job("4711+1.0") == SlurmJob(id="4711+1", step="0")


def test_what_is_no_report_is_quoted_and_stands_in_the_report(path: Path) -> None:
    program(
        path, "ssh", r"""for host; do :; [ "$host" = h2 ] && printf '\001\377\376\002' && exit 0; done; echo '{}'"""
    )
    done = attach(path, "--hosts", "h1,h2", "--format", "json")
    report = report_of(done)
    assert done.returncode == 5 and report["verdict"]["status"] == "nothing"
    summary = report["verdict"]["summary"]
    assert "h1 was not looked at: ssh ended with exit code 0, and what it said is no report: '{}'" in summary
    assert "h2 was not looked at" in summary and "nothing in it is printable" in summary
    assert report["target"]["hosts"] == ["h1", "h2"] and "h1 was not looked at" in done.stderr
    text = " ".join(attach(path, "--hosts", "h1", "--quiet").stdout.split())
    assert "nothing to examine: h1 was not looked at: ssh ended with exit code 0" in text


def test_of_much_that_is_no_report_80_characters_are_quoted(path: Path) -> None:
    program(path, "ssh", r"""printf '\033]0;title\007'; head -c 3000000 /dev/zero | tr '\0' x""")
    summary = report_of(attach(path, "--hosts", "h1", "--format", "json"))["verdict"]["summary"]
    assert summary.endswith(f"is no report: ']0;title{'x' * 72}'")


def test_hosts_that_fail_alike_are_named_together(path: Path) -> None:
    program(path, "ssh", "echo 'ssh: no route' >&2; exit 255")
    summary = report_of(attach(path, "--hosts", "node[1-10]", "--format", "json"))["verdict"]["summary"]
    assert summary.startswith("node1, node2, ") and summary.endswith(" and 2 more were not looked at: ssh: no route")


def test_the_names_are_not_told_to_others(path: Path) -> None:
    program(path, "ssh", "echo 'ssh: no route' >&2; exit 255")
    said = attach(path, "--hosts", "me@secretive.example.org", "--format", "markdown").stdout
    assert "were not looked at" in said or "was not looked at" in said
    assert "secretive" not in said


@pytest.mark.parametrize("begins", ["", f"echo '{FACTS}'; "])
def test_a_host_that_writes_without_end_is_cut_off(path: Path, begins: str) -> None:
    program(path, "ssh", f"{begins}exec yes 'all work and no play'")
    started = time.monotonic()
    done = attach(path, "--hosts", "h1", "--format", "json", "--timeout", "20", under=MEASURED)
    assert time.monotonic() - started < 15
    assert "h1 was not looked at: it said more than 64 MiB, which is no report" in done.stderr
    assert report_of(done)["probes"][0]["status"] == "absent"
    assert int(done.stderr.split()[-1]) < 400_000


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM; while :; do echo on; sleep 0.05; done",
        "exec >&- 2>&-; exec sleep 300",
        "setsid sh -c 'exec sleep 12' & exit 0",  # keeps the pipes, out of reach of the signals
    ],
)
def test_the_time_holds_whatever_stays(path: Path, script: str) -> None:
    program(path, "ssh", script)
    started = time.monotonic()
    done = attach(path, "--hosts", "node[1-40]", "--format", "json", "--timeout", "4")
    assert time.monotonic() - started < 6
    summary = report_of(done)["verdict"]["summary"]
    assert "no answer in" in summary and "no time was left" in summary


def test_a_pid_wins_over_the_variables(path: Path) -> None:
    program(path, "ssh", f"touch {path}/asked; echo '{FACTS}'")
    process = subprocess.Popen(["sleep", "60"])
    try:
        variables = {"DDP_DOCTOR_HOSTS": "h1", "DDP_DOCTOR_ALL": "1"}
        done = attach(path, str(process.pid), "--no-stacks", **variables)
    finally:
        process.kill()
        process.wait()
    assert f"PID {process.pid} is no rank process" in done.stderr and not (path / "asked").exists()
    attach(path, DDP_DOCTOR_HOSTS="h1")
    assert (path / "asked").exists()


def test_hosts_that_are_typed_win_over_a_job_in_the_variables(path: Path) -> None:
    program(path, "ssh", f"echo '{FACTS}'")
    done = attach(path, "--hosts", "h1", "--format", "json", DDP_DOCTOR_SLURM_JOB="12")
    assert [run["name"] for run in report_of(done)["probes"]] == ["ssh h1"]


def test_where_slurm_is_not_set_up_that_is_said(path: Path) -> None:
    program(
        path,
        "squeue",
        "echo 'squeue: error: fetch_config: DNS SRV lookup failed' >&2\n"
        "echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1",
    )
    done = attach(path, "--slurm-job", "12")
    assert done.returncode == 5
    assert "Slurm is not set up here (Could not establish a configuration source)" in done.stderr
    assert "squeue:" not in done.stderr


def test_what_squeue_says_is_said_once(path: Path) -> None:
    program(path, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    said = attach(path, "--slurm-job", "12").stderr
    assert said == "ddp-doctor: cannot look at Slurm job 12: squeue: slurm_load_jobs error: Invalid job id specified\n"


def test_a_task_of_an_array_goes_by_its_own_number(path: Path) -> None:
    program(path, "squeue", "echo '4714 4711_3 RUNNING n[1-2]'")
    program(path, "scontrol", "printf 'n1\\nn2\\n'")
    program(path, "srun", f"echo \"$@\" >> {path}/asked; echo '{FACTS}'")
    report = report_of(attach(path, "--slurm-job", "4711_3.0", "--format", "json"))
    assert [run["status"] for run in report["probes"]] == ["ok", "ok"]
    asked = (path / "asked").read_text()
    assert asked.count("--jobid=4714 ") == 2 and asked.count("--slurm-job=4714.0") == 2


def test_of_several_that_run_one_has_to_be_named(path: Path) -> None:
    program(path, "squeue", "printf '4715 4711_[5-9] PENDING\\n4712 4711_1 RUNNING n1\\n4713 4711_2 RUNNING n2\\n'")
    done = attach(path, "--slurm-job", "4711")
    assert done.returncode == 5 and "2 jobs run under it, 4711_1 4711_2: name one" in done.stderr
