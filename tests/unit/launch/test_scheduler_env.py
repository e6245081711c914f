"""DDP110 on values."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.launch.scheduler_env import SchedulerEnv
from launching import meant, tree, variables

from ddp_doctor.model import Absent, Confidence, Severity

SHELL = ("ddp-doctor", "bash", "sshd", "systemd")


def judged(environ: dict[str, str], *commands: str, **changes: Any) -> Any:
    return run_check(SchedulerEnv, *meant(*variables(environ), *tree(*(commands or SHELL), **changes)))


@pytest.mark.parametrize(
    ("environ", "unset"),
    [
        ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, "unset TORCHELASTIC_USE_AGENT_STORE"),
        ({"TORCHELASTIC_RUN_ID": "none", "RANK": "0"}, "unset TORCHELASTIC_RUN_ID RANK"),
        (
            {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.5"},
            "unset TORCHELASTIC_RUN_ID",
        ),
        (
            {"TORCHELASTIC_RUN_ID": "none", "ROLE_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"},
            "unset TORCHELASTIC_RUN_ID ROLE_RANK RANK WORLD_SIZE",
        ),
        ({"LOCAL_RANK": "0"}, "unset LOCAL_RANK"),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "2"}, "unset LOCAL_RANK"),
        ({"NODE_RANK": "1"}, "unset NODE_RANK"),
        ({"NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1"}, "unset NODE_RANK"),
        ({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}, "unset SLURM_NTASKS"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "unset PMI_RANK PMI_SIZE"),
    ],
)
def test_hit_leftovers_and_exactly_what_to_unset(environ: dict[str, str], unset: str) -> None:
    (finding,) = judged(environ).findings
    assert finding.fixes[0].commands == (unset,)
    assert finding.confidence is Confidence.LIKELY
    stops_any_job = "TORCHELASTIC_USE_AGENT_STORE" in environ
    assert finding.severity is (Severity.ERROR if stops_any_job else Severity.WARNING)


def test_a_leftover_says_which_process_brought_it() -> None:
    (finding,) = judged({"LOCAL_RANK": "0"}, "ddp-doctor", "bash", "tmux", given=["LOCAL_RANK"]).findings
    assert finding.evidence[1].value == "already has LOCAL_RANK: tmux"


@pytest.mark.parametrize(
    "environ",
    [
        {"NODE_RANK": "0"},
        {"NODE_RANK": "1", "MASTER_ADDR": "gpu-1"},
        {"LOCAL_RANK": "-1"},
        {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"},
        {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"},
        {"RANK": "2", "WORLD_SIZE": "4", "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1"},
        {"SLURM_NTASKS": "1"},
        {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "bash"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
    ],
)
def test_near_miss_leftovers(environ: dict[str, str]) -> None:
    assert judged(environ).outcome.status == "clear"


def test_near_miss_variables_that_the_container_was_started_with() -> None:
    environ = {"LOCAL_RANK": "0"}
    assert judged(environ, "ddp-doctor", "bash", contained=True, given=["LOCAL_RANK"]).outcome.status == "clear"
    assert judged(environ, "ddp-doctor", "bash", contained=True).outcome.status == "hit"


def test_near_miss_variables_the_process_set_itself() -> None:
    facts = meant(*variables({"LOCAL_RANK": "0", "PMI_SIZE": "2"}, inherited=False), *tree(*SHELL))
    assert run_check(SchedulerEnv, *facts).outcome.status == "clear"


def test_the_shell_of_an_allocation_is_a_note() -> None:
    environ = {"SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}
    (finding,) = judged(environ, "ddp-doctor", "bash slurm_script", "slurmstepd: [7.batch]", "systemd").findings
    assert finding.severity is Severity.NOTE
    assert finding.fixes[0].commands == ("srun python train.py",)


TWICE = {
    "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_PROCID": "3", "RANK": "0", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip
UNDER_SRUN = ("python train.py", "pt_elastic", "slurmstepd: [7.0]", "systemd")


@pytest.mark.parametrize("run_id", ["none", "7"])
def test_hit_a_torchrun_in_each_of_several_tasks(run_id: str) -> None:
    (finding,) = judged(TWICE | {"TORCHELASTIC_RUN_ID": run_id}, *UNDER_SRUN).findings
    assert finding.severity is Severity.ERROR
    assert finding.summary == (
        "srun started 4 tasks on this node and each runs its own torchrun, which expects 2 agents in all"
    )


def test_near_miss_as_many_agents_as_tasks() -> None:
    assert judged(TWICE | {"GROUP_WORLD_SIZE": "8"}, *UNDER_SRUN).outcome.status == "clear"
    one_per_node = TWICE | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert judged(one_per_node, *UNDER_SRUN).outcome.status == "clear"


def test_unknown_without_the_process_tree() -> None:
    absent = Absent(kind="Ancestor", status="denied", reason="/proc is hidden", how_to_get="ps --forest")
    found = run_check(SchedulerEnv, *meant(*variables({"LOCAL_RANK": "0"})), absent)
    assert (found.outcome.status, found.outcome.reason) == ("unknown", "/proc is hidden: ps --forest")
