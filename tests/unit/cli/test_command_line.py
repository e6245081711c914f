"""The command line as a person or a script meets it: help, errors, exit codes, streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def ddp_doctor(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """One call, with stdout and stderr apart."""
    return subprocess.run(
        [sys.executable, "-m", "ddp_doctor", *arguments],
        env=ENVIRONMENT | variables,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with the thread-launch keys: a problem that needs no probe."""
    path = tmp_path / "train.log"
    path.write_text(
        "DistStoreError: wait timeout after 12000ms, keys: /default_pg/1//cpu//0/0\n"
        "DistStoreError: wait timeout after 12000ms, keys: /default_pg/0//cpu//0/1\n"
    )
    return path


@pytest.mark.parametrize("command", [(), ("run",), ("attach",), ("triage",), ("lint",), ("explain",), ("checks",)])
def test_help(command: tuple[str, ...]) -> None:
    done = ddp_doctor(*command, "--help")
    assert done.returncode == 0 and "Usage: ddp-doctor" in done.stdout and not done.stderr


def test_version() -> None:
    done = ddp_doctor("--version")
    assert (done.returncode, done.stdout) == (0, "ddp-doctor 0.1.0\n")


def test_checks_lists_each_check_once() -> None:
    rows = json.loads(ddp_doctor("checks", "--format", "json").stdout)
    ids = [row["id"] for row in rows]
    assert "DDP103" in ids and ids == sorted(set(ids))
    text = ddp_doctor("checks").stdout
    assert all(f"{row['id']}  {row['name']} " in text for row in rows)


@pytest.mark.parametrize("entry", ["DDP103", "ddp103", "thread-launch"])
def test_explain(entry: str) -> None:
    done = ddp_doctor("explain", entry)
    assert done.returncode == 0
    assert done.stdout.startswith("# DDP103 thread-launch - ")


def test_explain_names_the_nearest() -> None:
    done = ddp_doctor("explain", "tread-launch")
    assert done.returncode == 2
    assert "nearest: thread-launch" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--", "torchrun", "train.py"), "ddp-doctor watch -- torchrun train.py"),
        (("run", "--nonsense"), "--nonsense"),
        (("run", "--timeout", "soon"), "--timeout"),
        (("run", "--timeout", "-1"), "--timeout"),
        (("run", "--timeout", "inf"), "--timeout"),
        (("run", "--timeout", "nan"), "--timeout"),
        (("run", "--probe-timeout", "1e308"), "--probe-timeout"),
        (("run", "--nproc", "0"), "--nproc"),
        (("run", "--format", "yaml"), "yaml"),
        (("run", "--select", "DDP9999"), "DDP9999"),
        (("run", "-o", "/no/such/folder/report.txt"), "no such folder"),
        (("run", "--share", "/no/such/folder"), "--share /no/such/folder: no such folder"),
        (("run", "--share", ""), "--share '': no such folder"),
        (("run", "--share", __file__), f"--share {__file__}: no folder"),
        (("run", "--share", "n" * 300), "no such folder"),
        (("run", "--failing-nodes", "/no/such/folder/nodes"), "cannot write /no/such/folder/nodes: no such folder"),
        (("run", "--failing-nodes", "/proc"), "cannot write /proc: it is a folder"),
        (("run", "--failing-nodes", ""), "it is a folder"),
        (("frobnicate",), "frobnicate"),
        (("triage",), "PATH"),
        (("attach", "one"), "PID"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], words: str) -> None:
    done = ddp_doctor(*arguments)
    assert done.returncode == 2 and not done.stdout
    assert words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("share", ["", __file__])
def test_what_is_no_shared_folder_on_any_host_is_a_usage_error_of_a_rank_too(share: str) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    done = ddp_doctor("run", "--wait", "30", "--share", share, **rank)
    assert done.returncode == 2 and not done.stdout
    assert "--share" in done.stderr and "Traceback" not in done.stderr


def test_problem_is_exit_1_and_goes_to_stdout(log: Path) -> None:
    done = ddp_doctor("triage", str(log))
    assert done.returncode == 1 and not done.stderr
    assert "error[DDP103]" in done.stdout and done.stdout.splitlines()[-1].startswith("1 error found")


def test_fail_on_never(log: Path) -> None:
    assert ddp_doctor("triage", "--fail-on", "never", str(log)).returncode == 0


def test_ignored_with_a_reason(log: Path, tmp_path: Path) -> None:
    (tmp_path / "ddp-doctor.toml").write_text('ignore = {DDP103 = "the trainer is known to do this"}\n')
    done = ddp_doctor("triage", str(log), cwd=tmp_path)
    assert done.returncode == 4  # a job found hung, and nothing left that names a cause
    assert "ignored DDP103: the trainer is known to do this" in done.stdout


def test_nothing_to_examine(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    assert ddp_doctor("triage", str(empty)).returncode == 5
    assert ddp_doctor("triage", str(tmp_path / "missing.log")).returncode == 5
    done = ddp_doctor("attach", "4194300")
    assert done.returncode == 5 and "there is no process 4194300" in done.stderr


def test_settings_file_flag_and_variable(log: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ddp-doctor]\nformat = "json"\n')
    assert json.loads(ddp_doctor("triage", str(log), cwd=tmp_path).stdout)["verdict"]["finding"] == "DDP103"
    by_flag = ddp_doctor("triage", "--format", "text", str(log), cwd=tmp_path)
    by_variable = ddp_doctor("triage", str(log), cwd=tmp_path, DDP_DOCTOR_FORMAT="text")
    assert by_flag.stdout.startswith("ddp-doctor ") and by_variable.stdout.startswith("ddp-doctor ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("formt = 'json'", "did you mean format?"),
        ("timeout = ", "ddp-doctor.toml"),
        ("timeout = 'soon'", "timeout must be a number, not 'soon'"),
    ],
)
def test_bad_settings(text: str, words: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "ddp-doctor.toml").write_text(text)
    done = ddp_doctor("triage", str(log), cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_output_file(log: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = ddp_doctor("triage", str(log), "--format", "json", "-o", str(report))
    assert done.returncode == 1 and not done.stdout
    assert json.loads(report.read_text())["schema"] == "ddp-doctor/report/1"


def test_full_disk(log: Path) -> None:
    done = ddp_doctor("triage", str(log), "-o", "/dev/full")
    assert done.returncode == 3
    assert "cannot write /dev/full: No space left on device" in done.stderr
    assert "error[DDP103]" in done.stdout  # the report is not lost


@pytest.mark.parametrize("command", ["triage {log}", "checks", "explain thread-launch"])
def test_full_stdout(command: str, log: Path) -> None:
    line = f"{sys.executable} -m ddp_doctor {command.format(log=log)} > /dev/full"
    done = subprocess.run(["sh", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["triage {log}", "checks", "explain thread-launch", "--help"])
@pytest.mark.parametrize("stdout", ["| true", ">&-"])
def test_reader_went_away(command: str, stdout: str, log: Path) -> None:
    line = f"{sys.executable} -m ddp_doctor {command.format(log=log)} {stdout}"
    done = subprocess.run(["sh", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_closed_stdout_keeps_the_exit_code(log: Path) -> None:
    line = f"{sys.executable} -m ddp_doctor triage {log} >&-"
    done = subprocess.run(["sh", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "stdout is closed" in done.stderr


def test_colour(log: Path) -> None:
    assert "\x1b[" not in ddp_doctor("triage", str(log)).stdout
    assert "\x1b[1;31merror[DDP103]" in ddp_doctor("triage", "--color", "always", str(log)).stdout


def test_ascii_output(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddp_doctor", "triage", str(log)],
        env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout.isascii()


def test_stdin(log: Path) -> None:
    line = f"{sys.executable} -m ddp_doctor triage - < {log}"
    done = subprocess.run(["sh", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the one that wrote stdin" in done.stdout


def test_what_could_drive_a_terminal_is_shown_as_escapes() -> None:
    done = ddp_doctor(
        "run",
        "--timeout",
        "8",
        RANK="\x1b[31m0",
        WORLD_SIZE="2",
        GLOO_SOCKET_IFNAME="a\u202eb",
        NCCL_DEBUG="\x1b]0;x\a",
    )
    assert "\x1b" not in done.stdout and "\a" not in done.stdout and "\u202e" not in done.stdout
    assert "\\x1b[31m0" in done.stdout


def test_a_long_value_does_not_flood_the_report() -> None:
    done = ddp_doctor("run", "--timeout", "8", RANK="9" * 100_000, WORLD_SIZE="2")
    assert "(100,0" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 2500 and len(done.stdout) < 40_000


@pytest.mark.parametrize("shadow", ["typing.py", "msgspec.py", "typer.py", "select.py"])
def test_files_of_the_user_do_not_shadow_ours(shadow: str, tmp_path: Path) -> None:
    (tmp_path / shadow).write_text("raise RuntimeError('not mine')\n")
    assert ddp_doctor("--version", cwd=tmp_path).stdout == "ddp-doctor 0.1.0\n"


def test_a_pack_that_failed_has_a_page() -> None:
    assert ddp_doctor("explain", "DDP901").stdout.startswith("# DDP901 pack-failed - ")


@pytest.mark.parametrize("command", ["checks", "explain thread-launch"])
def test_head_is_content(command: str) -> None:
    line = f"set -o pipefail; {sys.executable} -m ddp_doctor {command} | head -n 1"
    done = subprocess.run(["bash", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timeout = true\n", "timeout must be a number, not true"),
        ('strict = "yes"\n', "strict must be true or false, not 'yes'"),
        ("ignore = {DDP202 = 3}\n", "ignore must be a list of texts, or a table"),
        ("select = [3]\n", "select must be a list of texts, not [3]"),
        ("verbose = 1.5\n", "verbose must be a whole number, not 1.5"),
        ("format = 3\n", "format must be a text, not 3"),
        (f"select = {'[' * 3000}{']' * 3000}\n", "nested too deeply"),
    ],
)
def test_a_value_of_the_wrong_type_is_a_usage_error(tmp_path: Path, log: Path, text: str, words: str) -> None:
    (tmp_path / "ddp-doctor.toml").write_text(text)
    done = ddp_doctor("triage", str(log), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ddp-doctor.toml" in done.stderr and words in done.stderr


def test_a_table_of_the_project_file_that_is_none_is_a_usage_error(tmp_path: Path, log: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nddp-doctor = 3\n")
    done = ddp_doctor("triage", str(log), cwd=tmp_path)
    assert done.returncode == 2 and "pyproject.toml: tool.ddp-doctor must be a table, not 3" in done.stderr


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_settings_file_that_is_no_file_is_a_usage_error(tmp_path: Path, log: Path, kind: str) -> None:
    own = tmp_path / "ddp-doctor.toml"
    if kind == "folder":
        own.mkdir()
    elif kind == "pipe":
        os.mkfifo(own)
    else:
        own.symlink_to(tmp_path / "nowhere")
    for arguments in ((), ("--config", str(own))):
        done = ddp_doctor("triage", str(log), *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert str(own) in done.stderr or "ddp-doctor.toml" in done.stderr


ONE_RANK = (
    "import torch.distributed as dist\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n    dist.barrier()\n"
)


@pytest.mark.parametrize("content", [b"x = 1\ndef f(:\n", b"root:x:0:0::/root:/bin/bash\n", b"\0\1\2\xff" * 99])
def test_lint_of_what_cannot_be_parsed_is_no_pass(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    done = ddp_doctor("lint", "bad.py", cwd=tmp_path)
    assert done.returncode == 4 and "bad.py: " in done.stdout


def test_lint_of_a_folder_in_which_something_could_be_parsed(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "good.py").write_text("import torch\n")
    os.mkfifo(tmp_path / "pipe.py")
    assert ddp_doctor("lint", str(tmp_path)).returncode == 0
    (tmp_path / "good.py").write_text(ONE_RANK)
    assert ddp_doctor("lint", str(tmp_path)).returncode == 1


def test_lint_passes_over_a_pipe_beside_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ONE_RANK)
    os.mkfifo(tmp_path / "other.py")
    done = ddp_doctor("lint", str(script), "--timeout", "30")
    assert done.returncode == 1 and "DDP601" in done.stdout and "no answer" not in done.stdout


def test_lint_of_a_notebook_with_large_outputs(tmp_path: Path) -> None:
    output = {"output_type": "stream", "text": "x" * (2 << 20)}
    cells = [{"cell_type": "code", "source": ONE_RANK, "outputs": [output]}]
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    done = ddp_doctor("lint", "train.ipynb", cwd=tmp_path)
    assert done.returncode == 1 and "train.ipynb cell 1:4" in done.stdout


def test_attach_to_what_is_no_rank(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleep, subprocess.Popen(["sh", "-c", "sleep 60; true"]) as shell:
        with subprocess.Popen(["true"], cwd=tmp_path) as zombie:
            try:
                for pid in (sleep.pid, shell.pid, zombie.pid):
                    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
                    done = ddp_doctor("attach", str(pid))
                    said = "has ended" if pid == zombie.pid else "is no rank process"
                    assert done.returncode == 5 and f"PID {pid} {said}" in done.stderr
                    assert ("`ddp-doctor triage LOG...`" in done.stderr) is (pid == zombie.pid)
                    assert "sudo" not in done.stdout + done.stderr
            finally:
                sleep.kill()
                subprocess.run(["pkill", "-P", str(shell.pid)], check=False)
                shell.kill()


def test_attach_names_a_process_once_and_does_not_send_in_circles() -> None:
    start = "import os, time; os.environ.update(RANK='0', WORLD_SIZE='1'); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None and job.stdout.readline()
            done = ddp_doctor("attach", *[str(job.pid)] * 2, "--no-stacks", "--format", "json")
        finally:
            job.kill()
    report = json.loads(done.stdout)
    assert [row["pid"] for row in report["ranks"]] == [job.pid]
    separate = report["verdict"]["separate"]
    assert separate is None or not any("attach PID" in line for line in separate["commands"])


def test_triage_of_what_is_empty_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / "b.log").write_bytes(b"\n \n")
    done = ddp_doctor("triage", "a.log", cwd=tmp_path)
    assert done.returncode == 5 and "ddp-doctor: a.log is empty" in done.stderr
    done = ddp_doctor("triage", "a.log", "b.log", cwd=tmp_path)
    assert done.returncode == 5 and "ddp-doctor: 2 files are empty: a.log, b.log" in done.stderr
    (tmp_path / "c.log").write_text("run 3 done\n")
    assert "empty" not in ddp_doctor("triage", ".", cwd=tmp_path).stderr
    assert "ddp-doctor: a.log is empty" in ddp_doctor("triage", "a.log", "c.log", cwd=tmp_path).stderr
