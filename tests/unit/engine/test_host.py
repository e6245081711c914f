"""Workers end at their deadline, inherit nothing, and do not outlive the doctor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ddp_doctor.child import survivors
from ddp_doctor.deadline import Deadline
from ddp_doctor.host import Host, worker_environment


def test_a_program_that_hangs_is_killed_at_its_deadline() -> None:
    started = time.monotonic()
    answer = Host().run(["sleep", "600"], seconds=0.3)
    assert answer.status == "timeout" and answer.reason.startswith("no answer in 0.3")
    assert time.monotonic() - started < 2


def test_the_hosts_deadline_beats_the_probes() -> None:
    started = time.monotonic()
    assert Host(0.2).run(["sleep", "600"], seconds=60).status == "timeout"
    assert time.monotonic() - started < 2


def test_grandchildren_go_too() -> None:
    host = Host()
    answer = host.run(["sh", "-c", "echo $$; sleep 600 & sleep 600"], seconds=0.5)
    assert answer.status == "timeout"
    assert survivors(int(answer.printed)) == ()


def test_output_and_exit_code() -> None:
    answer = Host().run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.status, answer.code, answer.printed) == ("ok", 3, "out\nerr\n")


def test_a_program_that_does_not_exist() -> None:
    answer = Host().run(["no-such-program"])
    assert answer.status == "absent" and answer.reason == "no-such-program: No such file or directory"


def test_an_interpreter_that_does_not_exist() -> None:
    answer = Host().ask("read_files", {"paths": [], "limit": 1}, python=["/no/such/python"])
    assert answer.status == "absent" and "No such file" in answer.reason


def test_files_that_are_there_and_not(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("text\n")
    assert Host().read(str(there), str(tmp_path / "not")) == {str(there): "text\n", str(tmp_path / "not"): None}


def test_a_file_that_hangs(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert Host().read(str(fifo), seconds=0.3) == {str(fifo): None}


def test_only_the_channel_and_dev_null_are_inherited() -> None:
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        answer = Host().run(["sh", "-c", "for f in /proc/self/fd/*; do readlink $f; done"])
    finally:
        os.close(held)
    kinds = {line.split(":")[0].split(" ")[0] for line in answer.printed.split("\n") if line}
    assert not any("hostname" in line for line in answer.printed.splitlines())
    assert "pipe" not in kinds


@pytest.mark.parametrize(
    "name",
    ["NCCL_TOPO_DUMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCHELASTIC_ERROR_FILE", "NCCL_COMM_ID", "RANK", "NCCL_DEBUG",
     "TORCHELASTIC_USE_AGENT_STORE", "MASTER_PORT", "TORCH_FR_DUMP_TEMP_FILE", "AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_no_output_path_and_no_rank_reaches_a_worker(name: str) -> None:
    assert name not in worker_environment({name: "/job/file", "PATH": "/bin"})


@pytest.mark.parametrize(
    "name", ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NCCL_TOPO_FILE"]
)
def test_what_is_under_examination_reaches_a_worker(name: str) -> None:
    assert worker_environment({name: "value"})[name] == "value"


def test_a_conf_file_cannot_make_nccl_write_over_a_log() -> None:
    assert worker_environment({"NCCL_DEBUG_FILE": "/job/nccl.log"})["NCCL_DEBUG_FILE"] == ""


def test_killing_the_doctor_kills_its_workers(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import threading, time
        from ddp_doctor.host import Host
        host = Host()
        for _ in range(3):
            threading.Thread(target=host.run, args=(["sleep", "600"],), kwargs={"seconds": 600}).start()
        time.sleep(1)
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    doctor = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert doctor.stdout is not None and doctor.stdout.readline() == b"ready\n"
    children = Path(f"/proc/{doctor.pid}/task")
    pids = [int(pid) for thread in children.iterdir() for pid in (thread / "children").read_text().split()]
    assert len(pids) == 3
    doctor.send_signal(signal.SIGKILL)
    doctor.wait()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.02)
    assert not [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_forks_talk_print_and_end_each_for_itself() -> None:
    scripts = ("echo one; exit 3", "echo two; kill -9 $$", "echo three")
    forks = [{"argv": ["sh", "-c", script]} for script in scripts]
    with Host().start("run_command", {}, forks=forks) as child:
        codes = [fork.exit_code(5.0) for fork in child.forks]
        printed = [fork.printed() for fork in child.forks]
        group = child.pid
    assert codes == [3, -signal.SIGKILL, 0]
    assert printed == ["one\n", "two\n", "three\n"]
    assert survivors(group) == ()


def test_each_fork_answers_its_own_request_on_its_own_channel(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_text(path)
    forks = [{"paths": [path], "limit": 1000} for path in paths]
    with Host().start("read_files", {}, forks=forks) as child:
        said = [list(fork.messages(Deadline(5.0))) for fork in child.forks]
        senders = {fork.sender for fork in child.forks}
    assert said == [[{"path": path, "text": path}] for path in paths]
    assert len(senders) == 2 and child.pid not in senders


def test_forks_are_killed_with_their_session_and_say_why_none_came_to_be() -> None:
    hanging = [{"argv": ["sleep", "600"]}] * 2
    with Host().start("run_command", {}, forks=hanging) as child:
        assert child.forks[0].exit_code(0.3) is None
        assert survivors(child.pid)
    assert survivors(child.pid) == ()
    broken = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with Host().start("run_command", {}, forks=hanging, python=broken) as child:
        assert child.forks[1].receive(Deadline(5.0)) is None
        assert child.forks[1].exit_code() == 1
        assert child.forks[1].printed() == "no such luck\n"


def test_bytes_that_are_no_text_can_be_shown_and_reach_workers_as_they_are() -> None:
    host = Host(environ={"PATH": os.environ["PATH"], "MASTER_ADDR": "\udcff\udcfe", "NCCL_SOCKET_IFNAME": "\udcff"})
    assert host.environ["MASTER_ADDR"] == r"\xff\xfe"
    assert host.run(["sh", "-c", "printf %s $NCCL_SOCKET_IFNAME | od -An -tx1"]).printed.strip() == "ff"
