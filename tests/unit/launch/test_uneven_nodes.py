"""DDP109 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.uneven_nodes import UnevenNodes
from launching import variables

from ddp_doctor.model import Absent, Severity


@pytest.mark.parametrize(
    ("environ", "summary"),
    [
        ({"SLURM_TASKS_PER_NODE": "4,3"}, "Slurm starts 3 and 4 tasks per node: the nodes are not alike"),
        (
            {"WORLD_SIZE": "7", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"},
            "7 ranks are not 4 on each node: the nodes are not alike",
        ),
    ],
)
def test_hit(environ: dict[str, str], summary: str) -> None:
    judged = run_check(UnevenNodes, *variables(environ))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.summary == summary and finding.severity is Severity.NOTE


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_TASKS_PER_NODE": "4(x2)"},
        {"SLURM_TASKS_PER_NODE": "4(x2),x"},
        {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"},
        {"WORLD_SIZE": "x", "LOCAL_WORLD_SIZE": "0"},
    ],
)
def test_near_miss(environ: dict[str, str]) -> None:
    assert run_check(UnevenNodes, *variables(environ)).outcome.status == "clear"


def test_unknown() -> None:
    assert run_check(UnevenNodes, Absent(kind="Variable", status="timeout")).outcome.status == "unknown"
