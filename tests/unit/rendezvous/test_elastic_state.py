"""DDP205 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.rendezvous.elastic_state import ElasticState
from launching import variables

from ddp_doctor.model import Absent, Severity

C10D = {"PET_NNODES": "2", "PET_RDZV_BACKEND": "c10d"}


@pytest.mark.parametrize(
    ("environ", "severity", "fix"),
    [
        (C10D, Severity.WARNING, "export PET_RDZV_ENDPOINT=NODE0:29400"),
        (C10D | {"PET_RDZV_ENDPOINT": "localhost:29400", "MASTER_ADDR": "gpu-1"}, Severity.WARNING,
         "export PET_RDZV_ENDPOINT=gpu-1:29400"),
        ({"PET_NNODES": "two"}, Severity.ERROR, "unset PET_NNODES"),
        ({"PET_NNODES": "3:2"}, Severity.ERROR, "unset PET_NNODES"),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "2"}, Severity.ERROR, "unset PET_NODE_RANK PET_NNODES"),
        ({"PET_NNODES": "2", "PET_STANDALONE": "1"}, Severity.WARNING, "unset PET_STANDALONE"),
    ],
)  # fmt: skip
def test_hit(environ: dict[str, str], severity: Severity, fix: str) -> None:
    judged = run_check(ElasticState, *variables(environ))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.severity is severity and finding.fixes[0].commands == (fix,)


@pytest.mark.parametrize(
    "environ",
    [
        C10D | {"PET_RDZV_ENDPOINT": "gpu-1:29400"},
        C10D | {"PET_NNODES": "1"},
        {"PET_NNODES": "2", "PET_NODE_RANK": "1"},
        {"PET_NNODES": "1:2", "PET_STANDALONE": "1"},
        {"PET_RDZV_BACKEND": "c10d"},
        {"PET_NNODES": "2", "PET_NODE_RANK": "x"},
    ],
)
def test_near_miss(environ: dict[str, str]) -> None:
    assert run_check(ElasticState, *variables(environ)).outcome.status == "clear"


def test_unknown() -> None:
    assert run_check(ElasticState, Absent(kind="Variable", status="timeout")).outcome.status == "unknown"
