"""DDP102 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.no_launcher_env import NoLauncherEnv
from launching import meant, variables

from ddp_doctor.facts.launch import Variable
from ddp_doctor.model import Absent, Confidence, Severity


@pytest.mark.parametrize("value", ["x", "", "1.5", "-1", "0x1", "1e3", "\udce9"])
def test_hit_rank_that_int_does_not_read(value: str) -> None:
    judged = run_check(NoLauncherEnv, *variables({"RANK": value, "WORLD_SIZE": "2"}))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.severity is Severity.ERROR and finding.confidence is Confidence.CERTAIN
    assert finding.evidence[0].value == f"RANK={value}"
    assert finding.fixes[0].commands == ("unset RANK WORLD_SIZE",)


@pytest.mark.parametrize(
    ("environ", "summary"),
    [
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is '0': it must be a whole number of at least 1"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 does not exist in a job of WORLD_SIZE=2: ranks count from 0"),
        (
            {"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"},
            "LOCAL_RANK=4 does not exist in a job of LOCAL_WORLD_SIZE=4: ranks count from 0",
        ),
        ({"SLURM_NTASKS": "eight"}, "SLURM_NTASKS is 'eight': it must be a whole number of at least 1"),
    ],
)
def test_hit_impossible_numbers(environ: dict[str, str], summary: str) -> None:
    assert [finding.summary for finding in run_check(NoLauncherEnv, *variables(environ)).findings] == [summary]


def test_one_bad_value_is_one_finding() -> None:
    assert len(run_check(NoLauncherEnv, *variables({"RANK": "x"})).findings) == 1


def test_hit_rank_without_world_size_is_a_warning() -> None:
    (finding,) = run_check(NoLauncherEnv, *variables({"RANK": "0"})).findings
    assert finding.severity is Severity.WARNING


def test_world_size_alone_is_a_note_and_none_where_a_scheduler_gives_the_rank() -> None:
    (finding,) = run_check(NoLauncherEnv, *variables({"WORLD_SIZE": "2"})).findings
    assert finding.severity is Severity.NOTE
    facts = meant(*variables({"WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}))
    assert run_check(NoLauncherEnv, *facts).outcome.status == "clear"


@pytest.mark.parametrize(
    "environ",
    [
        {"OMP_NUM_THREADS": "1"},
        {"RANK": " 1 ", "WORLD_SIZE": "+2"},  # int() takes both
        {"LOCAL_RANK": "-1"},  # Transformers' own word for "not distributed"
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    ],
)
def test_near_miss(environ: dict[str, str]) -> None:
    assert run_check(NoLauncherEnv, *variables(environ)).outcome.status == "clear"


def test_an_entry_of_a_conf_file_is_not_the_environment() -> None:
    entry = Variable(source="/etc/nccl.conf:3", name="RANK", value="x")
    assert run_check(NoLauncherEnv, entry).outcome.status == "clear"


def test_unknown_without_the_variables() -> None:
    absent = Absent(kind="Variable", status="timeout", reason="no answer in 5.0 s", how_to_get="env")
    assert run_check(NoLauncherEnv, absent).outcome.status == "unknown"
