"""Faults of the launch environment, made for real below a shell: named, and gone once the printed fix has run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import CLEAN, ROOT, claims, examined_below

SETTINGS = {
    "agent store": ("DDP110", {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
    "run id": ("DDP110", {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}),
    "LOCAL_RANK": ("DDP110", {"LOCAL_RANK": "0"}),
    "NODE_RANK": ("DDP110", {"NODE_RANK": "1"}),
    "SLURM_NTASKS": ("DDP110", {"SLURM_NTASKS": "2"}),
    "Slurm step": ("DDP110", {"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_JOB_NAME": "t"}),
    "Open MPI": ("DDP110", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}),
    "RANK=x": ("DDP102", {"RANK": "x", "WORLD_SIZE": "2"}),
    "RANK empty": ("DDP102", {"RANK": "", "WORLD_SIZE": "2"}),
    "WORLD_SIZE=-1": ("DDP102", {"RANK": "0", "WORLD_SIZE": "-1"}),
    "RANK too high": ("DDP102", {"RANK": "2", "WORLD_SIZE": "2"}),
    "LOCAL_RANK=1.0": ("DDP102", {"LOCAL_RANK": "1.0"}),
    "RANK alone": ("DDP102", {"RANK": "0"}),
    "SLURM_NTASKS=x": ("DDP102", {"SLURM_NTASKS": "x"}),
    "NCCL_COMM_ID": ("DDP118", {"NCCL_COMM_ID": "10.0.0.1:4242"}),
    "debug level": ("DDP118", {"TORCH_DISTRIBUTED_DEBUG": "yes"}),
    "Gloo device": ("DDP118", {"GLOO_DEVICE_TRANSPORT": "tcp"}),
    "CUDA_LAUNCH_BLOCKING": ("DDP118", {"CUDA_LAUNCH_BLOCKING": "1"}),
    "c10d on localhost": ("DDP205", {"PET_NNODES": "2", "PET_RDZV_BACKEND": "c10d", "PET_MASTER_ADDR": "10.0.0.1"}),
    "node 2 of 2": ("DDP205", {"PET_NNODES": "1:2", "PET_NODE_RANK": "2"}),
    "nodes 4:2": ("DDP205", {"PET_NNODES": "4:2"}),
    "standalone": ("DDP205", {"PET_NNODES": "2", "PET_STANDALONE": "1"}),
}


@pytest.mark.parametrize("fault", SETTINGS)
def test_named_and_cured_by_the_printed_fix(fault: str) -> None:
    expected, environ = SETTINGS[fault]
    found = examined_below(environ=environ)
    assert claims(found) == [expected]
    fixes = [finding["fixes"][0] for finding in found["findings"] if finding["severity"] != "note"]
    assert claims(examined_below([line for fix in fixes for line in fix], environ)) == []


def test_the_second_fix_of_a_leftover_starts_a_command_without_it() -> None:
    (finding,) = examined_below(environ={"LOCAL_RANK": "0"})["findings"]
    (command,) = finding["fixes"][1]
    assert command == "env -u LOCAL_RANK python train.py"
    prefix = command.removesuffix(" python train.py").split()
    assert claims(examined_below(environ={"LOCAL_RANK": "0"}, wrap=prefix)) == []


def test_agent_store_leak_really_waits_and_its_fix_really_cures(tmp_path: Path) -> None:
    script = tmp_path / "one_rank.py"
    script.write_text(
        "import datetime, torch.distributed as d\n"
        "d.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))\nprint('initialised')\n"
    )
    environ = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "x"}
    own = f"RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29877 {sys.executable} {script}"
    (finding,) = examined_below(environ=environ)["findings"]
    assert finding["severity"] == "error"

    def outcome(*lines: str) -> str:
        return subprocess.run(
            ["bash", "-c", "\n".join([*lines, own])], env=CLEAN | environ, capture_output=True, text=True, timeout=60
        ).stdout

    assert "initialised" not in outcome()
    assert "initialised" in outcome(*finding["fixes"][0])


def test_conf_file_line_is_mended_as_printed(tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text('# ours\nNCCL_SOCKET_IFNAME="eth0"\nNCCL_DEBUG=WARN\n')
    environ = {"NCCL_CONF_FILE": str(conf)}
    found = examined_below(environ=environ)
    assert claims(found) == ["DDP118"]
    (finding,) = found["findings"]
    assert claims(examined_below(finding["fixes"][0], environ)) == []
    assert conf.read_text() == "# ours\nNCCL_SOCKET_IFNAME=eth0\nNCCL_DEBUG=WARN\n"


def test_stale_extension_lock_is_deleted_as_printed(tmp_path: Path) -> None:
    lock = tmp_path / "py311_cu121" / "fused adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    environ = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    assert claims(examined_below(environ=environ)) == []  # fresh: somebody may be building
    os.utime(lock, (1e9, 1e9))
    with lock.open():
        assert claims(examined_below(environ=environ)) == []  # this process builds
    found = examined_below(environ=environ)
    assert claims(found) == ["DDP504"]
    assert claims(examined_below(found["findings"][0]["fixes"][0], environ)) == []
    assert not lock.exists()


def test_nofile_of_64_is_named_and_raised_as_printed() -> None:
    found = examined_below(["ulimit -Sn 64"])
    assert claims(found) == ["DDP503"]
    assert claims(examined_below(["ulimit -Sn 64", *found["findings"][0]["fixes"][0]])) == []


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="needs root to mount a file system")
def test_shm_of_1_mib_is_named_and_enlarged_as_printed() -> None:
    small = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    found = examined_below([small], wrap=["unshare", "--mount"])
    assert claims(found) == ["DDP405"]
    fix = found["findings"][0]["fixes"][0]
    assert fix == ["mount -o remount,size=50% /dev/shm"]
    assert claims(examined_below([small, *fix], wrap=["unshare", "--mount"])) == []


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0 or not os.path.exists("/dev/fuse"), reason="needs root and FUSE")
def test_shm_that_does_not_answer_is_named_in_time() -> None:
    script = (
        "import namespaces\n"
        "from ddp_doctor.host import Host\n"
        "from ddp_doctor.model import Facts\n"
        "from ddp_doctor.probes import shm\n"
        "namespaces.unshare(namespaces.CLONE_NEWNS)\n"
        "server = namespaces.mount_dead_fuse('/dev/shm')\n"
        "host = Host(10.0, probe_seconds=0.5)\n"
        "(absent,) = shm.take(host, Facts())\n"
        "print(absent.status, absent.reason.startswith('/dev/shm: no answer in 0.5'), host.undead)\n"
    )
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "live")))
    done = subprocess.run(
        [sys.executable, "-c", script], env=CLEAN | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "timeout True {}\n", done.stderr


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="needs root to mount a file system")
def test_files_of_ended_jobs_in_shm_are_named_and_removed_as_printed() -> None:
    fill = [
        "mount -t tmpfs -o size=40m tmpfs /dev/shm",
        "head -c 30000000 /dev/zero > /dev/shm/nccl-Ab12Cd",
        "touch -d '1 hour ago' /dev/shm/nccl-Ab12Cd",
    ]
    found = examined_below(fill, wrap=["unshare", "--mount"])
    assert claims(found) == ["DDP405"]
    fix = found["findings"][0]["fixes"][0]
    assert fix == ["rm -f /dev/shm/nccl-Ab12Cd"]
    assert claims(examined_below([*fill, *fix], wrap=["unshare", "--mount"])) == []
    held = examined_below([*fill, "exec 9< /dev/shm/nccl-Ab12Cd"], wrap=["unshare", "--mount"])
    assert "rm" not in json.dumps(held["findings"])


def test_a_worker_of_torchrun_is_recognised_and_healthy(tmp_path: Path) -> None:
    torchrun = Path(sys.executable).parent / "torchrun"
    if not torchrun.exists():
        pytest.skip("no torchrun beside this interpreter")
    script = tmp_path / "train.py"
    script.write_text("from launching import examine_here\nexamine_here()\n")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "checks", ROOT / "tests")))
    done = subprocess.run(
        [torchrun, "--standalone", "--nproc-per-node=2", script],
        env=CLEAN | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    results = [json.loads(line.split("examined: ")[1]) for line in done.stdout.splitlines() if "examined: " in line]
    assert len(results) == 2, done.stderr
    assert sorted(result["started_by"] for result in results) == [["torchrun", 0, 2], ["torchrun", 1, 2]]
    assert [result["findings"] for result in results] == [[], []]


def test_a_worker_forked_by_elastic_launch_is_recognised_and_healthy(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(
        "from torch.distributed.launcher.api import LaunchConfig, elastic_launch\n"
        "from launching import examine_here\n"
        "if __name__ == '__main__':\n"
        "    config = LaunchConfig(1, 1, 2, rdzv_backend='c10d', rdzv_endpoint='localhost:0', start_method='fork')\n"
        "    elastic_launch(config, examine_here)()\n"
    )
    path = os.pathsep.join(map(str, (ROOT, ROOT / "checks", ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, script], env=CLEAN | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    results = [json.loads(line.split("examined: ")[1]) for line in done.stdout.splitlines() if "examined: " in line]
    assert len(results) == 2, done.stderr
    assert [claims(result) for result in results] == [[], []]
    assert sorted(result["started_by"] for result in results) == [["torchrun", 0, 2], ["torchrun", 1, 2]]


@pytest.mark.skipif(not shutil.which("mpirun"), reason="no MPI here")
def test_a_rank_of_mpirun_is_recognised_and_healthy() -> None:
    found = examined_below(wrap=["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "1"])
    assert claims(found) == [] and found["started_by"] == ["mpi", 0, 1]
