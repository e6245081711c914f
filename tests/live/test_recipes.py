"""Recipes as printed, run by the launchers they are for: each rank reports, and whatever is found ends nobody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import slurm
from jobs import free_port

pytestmark = pytest.mark.live
SCRIPTS = sysconfig.get_path("scripts")
ENVIRON = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMPI", "PMI", "MASTER_"))},
    "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry),
    "PATH": os.pathsep.join((SCRIPTS, str(Path(sys.executable).parent), os.environ["PATH"])),
    "MASTER_PORT": str(free_port()),
}


def recipe(folder: Path, *arguments: str) -> str:
    """The path of a recipe written to a file."""
    command = [sys.executable, "-m", "ddp_doctor", "recipe", *arguments]
    script = folder / "doctor"
    script.write_text(subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=True).stdout)
    return str(script)


def run(*command: str, seconds: float = 180, **variables: str) -> str:
    """The output of a command that ends well."""
    environ = ENVIRON | variables
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_torchrun_on_one_node(tmp_path: Path) -> None:
    out = run("sh", recipe(tmp_path, "torchrun", "--nodes", "1", "--nproc", "2"))
    assert "launched by torchrun" in out and re.search(r"no problem found|2/2 ranks", out)


def test_torchrun_goes_on_where_there_is_a_problem(tmp_path: Path) -> None:
    script = recipe(tmp_path, "torchrun", "--nodes", "1", "--nproc", "2")
    out = run("sh", script, GLOO_SOCKET_IFNAME="no-such-interface")
    assert "error[DDP" in out


def test_torchrun_on_two_nodes_asks_for_their_head(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", recipe(tmp_path, "torchrun")], env=ENVIRON, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "HEAD=gpu-17:29500" in done.stderr


@pytest.mark.slow
def test_torchrun_on_two_nodes(tmp_path: Path) -> None:
    script = recipe(tmp_path, "torchrun", "--nodes", "2", "--nproc", "1")
    environ = ENVIRON | {"HEAD": f"127.0.0.1:{free_port()}"}
    nodes = [subprocess.Popen(["sh", script], env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outs = [node.communicate(timeout=180)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert "launched by torchrun" in "".join(outs)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for the daemons and their namespaces")
@pytest.mark.skipif(bool(slurm.missing()), reason=f"not installed: {slurm.missing()}")
def test_slurm_on_two_nodes(tmp_path: Path) -> None:
    script = recipe(tmp_path, "slurm", "--nodes", "2", "--nproc", "1")
    with slurm.cluster(tmp_path) as first:
        run(*first, "env", f"PATH={ENVIRON['PATH']}:/usr/sbin", "sbatch", "--wait", f"--chdir={tmp_path}", script)
    (report,) = tmp_path.glob("ddp-doctor-*.txt")
    out = report.read_text()
    assert "launched by slurm" in out, out
    assert "error[" not in out, out


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_mpi_on_one_node(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# the job's\nlocalhost slots=2\n")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HOSTS": str(hosts)}
    out = run("sh", recipe(tmp_path, "mpi", "--nodes", "1", "--nproc", "2"), **allowed)
    assert "launched by mpi" in out, out
    assert "error[" not in out, out


@pytest.mark.slow
def test_ray_on_one_node(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    script = recipe(tmp_path, "ray", "--nodes", "1", "--nproc", "2")
    out = run(sys.executable, script, RAY_DISABLE_IMPORT_WARNING="1", RAY_USAGE_STATS_ENABLED="0")
    assert "no problem found" in out or "2/2 ranks" in out, out


TWO_NODES = """
import os, subprocess, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
try:
    cluster.add_node(num_cpus=1)
    environ = os.environ | {"RAY_ADDRESS": cluster.address}
    sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], env=environ, timeout=150).returncode)
finally:
    cluster.shutdown()
"""


@pytest.mark.slow
def test_ray_on_a_cluster_of_two_nodes_is_one_report(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    script = recipe(tmp_path, "ray", "--nodes", "2", "--nproc", "1")
    out = run(sys.executable, "-c", TWO_NODES, script, RAY_USAGE_STATS_ENABLED="0")
    assert "launched by ray" in out, out
    assert out.count("ddp-doctor 0.") == 1 and "2 of 2 ranks merged" in " ".join(out.split()), out
