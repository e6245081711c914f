"""Ranks of one job have one name whatever they think of MASTER_ADDR and MASTER_PORT; ranks of two jobs have two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddp_doctor.meeting.identity import FIRST_PORT, PORTS, Identity, identity, start_time, state

TORCHRUN = {"TORCHELASTIC_RUN_ID": "run-7", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}


def of(environ: dict[str, str], spawned: bool = False, script: str = "/a/train.py", parent: int = 1) -> Identity:
    return identity(environ, spawned=spawned, script=script, parent=parent)


@pytest.mark.parametrize("environ", [TORCHRUN, SLURM, {}], ids=["torchrun", "slurm", "by hand"])
def test_a_rank_with_another_port_or_rank_is_of_the_same_job(environ: dict[str, str]) -> None:
    other = environ | {"MASTER_PORT": "29501", "MASTER_ADDR": "elsewhere", "RANK": "1", "WORLD_SIZE": "9"}
    assert of(environ).here == of(other).here


def test_hosts_agree_on_a_port_without_the_launcher_of_either() -> None:
    first, second = of(TORCHRUN, parent=1), of(TORCHRUN, parent=os.getpid())
    assert first.here != second.here
    assert (first.everywhere, first.port) == (second.everywhere, second.port)
    assert FIRST_PORT <= first.port < FIRST_PORT + PORTS


def test_a_restart_is_another_meeting() -> None:
    again = of(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"})
    assert again.here != of(TORCHRUN).here and again.everywhere != of(TORCHRUN).everywhere


def test_what_only_shares_a_shell_is_not_sure_and_goes_by_its_script() -> None:
    assert of(TORCHRUN).sure and of(SLURM).sure and of({}, spawned=True).sure
    assert not of({}).sure
    assert of({}, script="/a/other.py").here != of({}).here


def test_steps_of_one_slurm_job_are_apart_and_need_no_common_parent() -> None:
    assert of(SLURM, parent=1).here == of(SLURM, parent=os.getpid()).here
    assert of(SLURM | {"SLURM_STEP_ID": "1"}).here != of(SLURM).here


def test_ranks_of_ray_are_below_one_raylet_and_named_by_the_port_that_ray_gave_them() -> None:
    ray = {"RAY_RAYLET_PID": "77", "RAY_JOB_ID": "ffffffff", "RANK": "0", "MASTER_PORT": "36535"}
    other = ray | {"RANK": "1", "RAY_JOB_ID": "01000000"}
    assert of(ray).here == of(other).here and of(ray).everywhere == of(other).everywhere
    assert of(ray).sure
    assert of(ray | {"MASTER_PORT": "36536"}).here != of(ray).here


def test_a_worker_of_ray_is_passed_over() -> None:
    name = Path("/proc/self/comm")
    own = name.read_text()
    ray = {"RAY_RAYLET_PID": "77", "RANK": "0", "MASTER_PORT": "36535"}
    above = of(ray, parent=os.getppid()).here
    name.write_text("ray::examine")
    try:
        assert of(ray, parent=os.getpid()).here == above
    finally:
        name.write_text(own)


def test_a_port_can_be_given() -> None:
    assert identity(TORCHRUN, spawned=False, script="", meet_port=31000).port == 31000


def test_a_process_and_one_that_is_not() -> None:
    assert start_time(os.getpid()) and state(os.getpid()) == "R"
    assert start_time(2**22 + 1) is None and state(2**22 + 1) == ""
