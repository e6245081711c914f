"""What attach takes from elsewhere than stacks: NVML through the fake driver, NCCL's RAS, recordings, and logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.nccl import healthy, why_not
from fakes.node import Holder, have_compiler, set_up
from faults import Fault, nccl_rank, ranks, running
from jobs import doctor, free_port

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
VERSION = "2.30.7"


def job(*parts: Any, logged: bool = False, settle: float = 3.0) -> Fault:
    return Fault("a job", (), None, parts, "", settle=settle, logged=logged)


def need_nccl(version: str = VERSION) -> None:
    if why_not(version):
        pytest.skip(why_not(version))


def found(report: dict[str, Any], finding: str) -> list[dict[str, Any]]:
    return [each for each in report["findings"] if each["id"] == finding]


def test_nvml_tells_who_holds_a_gpu(tmp_path: Path) -> None:
    need_nccl()
    if not have_compiler():
        pytest.skip("no gcc")
    parts = [nccl_rank(number, 3, VERSION, ID_FILE="{folder}/id") for number in (0, 1)]
    with running(job(*parts)) as started:
        node = healthy(2)
        held = tuple(Holder(pid=pid, mib=500) for pid in (started[0].pid, started[1].pid, 4_190_000))
        first = msgspec.structs.replace(node.gpus[0], count=1, processes=held)
        second = msgspec.structs.replace(node.gpus[0], count=1)
        seen = set_up(msgspec.structs.replace(node, gpus=(first, second)), tmp_path)
        _, report = doctor("attach", str(started[0].pid), LD_LIBRARY_PATH=str(seen.libraries))
    (shared,) = found(report, "DDP106")
    assert shared["ranks"] == [0, 1] and shared["severity"] == "error"
    assert [each["summary"].split(" of GPU")[0] for each in found(report, "DDP410")] in (
        ["PID 4190000 is gone, but still holds 500 MiB"],
        [],  # in a container the driver's PIDs are not ours
    )


def test_a_job_without_cuda_does_not_wake_the_driver(tmp_path: Path) -> None:
    if not have_compiler():
        pytest.skip("no gcc")
    seen = set_up(healthy(2), tmp_path)
    with running(job(*ranks(2, "healthy.py", HOW="idle"), settle=1.0)) as started:
        doctor("attach", str(started[0].pid), LD_LIBRARY_PATH=str(seen.libraries))
    assert seen.calls() == []


def test_ras_tells_that_a_rank_outside_of_nccl_has_its_communicator() -> None:
    need_nccl()
    parts = [
        nccl_rank(0, 2, VERSION, ID_FILE="{folder}/id"),
        nccl_rank(1, 2, VERSION, ("launch",), ID_FILE="{folder}/id"),
    ]
    with running(job(*parts, settle=5.0)) as started:
        _, report = doctor("attach", str(started[0].pid))
    assert [row["stage"] for row in report["ranks"]] == ["first-collective", "first-collective"]
    assert report["verdict"]["finding"] == "DDP407"


def test_no_port_of_nccl_but_ras_is_connected_to(tmp_path: Path) -> None:
    """A rank listens on one more port, like those of NCCL, and counts who comes."""
    need_nccl()
    counted = tmp_path / "came"
    parts = [nccl_rank(number, 3, VERSION, ID_FILE="{folder}/id", COUNT=str(counted)) for number in (0, 1)]
    with running(job(*parts)) as started:
        for process in started:
            doctor("attach", str(process.pid))
        assert counted.read_text() == "listening\nlistening\n"


def recording(call: str) -> str:
    entry = {"process_group": ["0", "default_pg"], "collective_seq_id": 4, "profiling_name": call, "input_sizes": [[4]],
             "state": "scheduled", "is_p2p": False}  # fmt: skip
    return json.dumps({"pg_config": {}, "entries": [entry]})


@pytest.mark.parametrize("stale", [False, True])
def test_recordings_of_this_run_count(stale: bool, tmp_path: Path) -> None:
    parts = ranks(2, "healthy.py", HOW="idle", TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "trace_"))
    with running(job(*parts, settle=0.5)) as started:
        for number, call in enumerate(("gloo:barrier", "gloo:all_reduce")):
            path = tmp_path / f"trace_{number}"
            path.write_text(recording(call))
            if stale:
                os.utime(path, (time.time() - 86_400,) * 2)
        _, report = doctor("attach", str(started[0].pid))
    assert [each["evidence"][0]["value"] for each in found(report, "DDP603")] == (
        [] if stale else ["rank 0: gloo:barrier [4]; rank 1: gloo:all_reduce [4]"]
    )


@pytest.mark.parametrize("appended", [False, True])
def test_a_log_of_this_run_counts(appended: bool, tmp_path: Path) -> None:
    """Words of an earlier run may stand in a log that is appended to."""
    log = tmp_path / "log"
    words = (
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, code: -98, "
    )
    line = f"{words}name: EADDRINUSE, message: address already in use\n"
    log.write_text(line)
    script = f"import time; print({line!r}, flush=True); time.sleep(600)"
    mode = os.O_WRONLY | (os.O_APPEND if appended else os.O_TRUNC)
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    output = os.open(log, mode)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", script],
        os.environ | environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, output, 1)],
    )
    try:
        time.sleep(1.0)
        _, report = doctor("attach", str(pid))
    finally:
        os.close(output)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert bool(found(report, "DDP112")) is not appended


@pytest.mark.parametrize("how", ["child", "child-read"])
def test_the_program_that_a_late_rank_waits_for_is_named(how: str) -> None:
    with running(job(*ranks(2, "stalled.py", HOW=how, BEFORE="1"))) as started:
        _, report = doctor("attach", str(started[0].pid))
    (late,) = found(report, "DDP604")
    assert late["ranks"] == [1] and "`sleep 600`" in late["because"]
    assert [each["fact"] for each in late["evidence"]].count("Child") == 1


def test_ranks_of_a_fork_are_said_to_be_such_live_and_from_a_bundle(tmp_path: Path) -> None:
    code = (
        "import os, time, torch.distributed as dist\n"
        f"os.environ.update(WORLD_SIZE='3', MASTER_ADDR='127.0.0.1', MASTER_PORT='{free_port()}')\n"
        "for rank in range(2):\n"
        "    if os.fork() == 0:\n"
        "        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))\n"
        "        dist.init_process_group('gloo')\n"
        "time.sleep(600)\n"
    )
    script = tmp_path / "forks.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script)], start_new_session=True) as process:
        try:
            time.sleep(8)
            environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

            def first_line(*arguments: str) -> str:
                command = [sys.executable, "-m", "ddp_doctor", *arguments]
                return subprocess.run(command, env=environ, capture_output=True, text=True).stdout.partition("\n")[0]

            assert first_line("attach", str(process.pid)).endswith("2 ranks of world size 3, started by os.fork")
            first_line("bundle", "-o", str(tmp_path / "job.zip"), "--from", str(process.pid))
            assert first_line("triage", str(tmp_path / "job.zip")).endswith(
                "2 ranks of world size 3, started by os.fork"
            )
        finally:
            os.killpg(process.pid, 9)
