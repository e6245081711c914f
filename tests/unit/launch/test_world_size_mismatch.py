"""DDP117 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.world_size_mismatch import WorldSizeMismatch
from launching import meant, tree, variables

from ddp_doctor.model import Absent

STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_PROCID": "1"}
TASK = tree("python train.py", "slurmstepd: [7.0]", "systemd")


@pytest.mark.parametrize(("world", "because"), [("16", "wait for 8 more"), ("4", "ranks 4 to 7 lie outside")])
def test_hit(world: str, because: str) -> None:
    (finding,) = run_check(WorldSizeMismatch, *meant(*variables(STEP | {"WORLD_SIZE": world}), *TASK)).findings
    assert finding.summary == f"WORLD_SIZE={world}, but slurm started 8 ranks (SLURM_STEP_NUM_TASKS=8)"
    assert because in finding.because
    assert finding.fixes[0].commands == ('export WORLD_SIZE="$SLURM_STEP_NUM_TASKS"',)


def test_hit_under_mpi() -> None:
    environ = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "WORLD_SIZE": "2"}
    facts = meant(*variables(environ), *tree("python t.py", "mpirun -n 4 python t.py", "systemd"))
    assert run_check(WorldSizeMismatch, *facts).outcome.status == "hit"


@pytest.mark.parametrize("world", ["8", "x", "0"])
def test_near_miss(world: str) -> None:
    facts = meant(*variables(STEP | {"WORLD_SIZE": world}), *TASK)
    assert run_check(WorldSizeMismatch, *facts).outcome.status == "clear"


def test_near_miss_torchrun_in_each_task_sets_its_own() -> None:
    environ = STEP | {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
    facts = meant(*variables(environ), *tree("python t.py", "pt_elastic", "slurmstepd: [7.0]", "systemd"))
    assert run_check(WorldSizeMismatch, *facts).outcome.status == "clear"


def test_unknown() -> None:
    assert run_check(WorldSizeMismatch, Absent(kind="Variable", status="timeout")).outcome.status == "unknown"
