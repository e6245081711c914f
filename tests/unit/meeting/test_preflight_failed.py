"""What the exception of `preflight` says."""

from __future__ import annotations

import pytest
from reports import finding, report

from ddp_doctor.model import Area, Severity
from ddp_doctor.rank.preflight import PreflightFailed, _concluded

FOUND = report(
    finding(),
    finding("DDP202", "loopback-name", Severity.WARNING, summary="the name is loopback's"),
    areas=(Area(title="port", status="clear", text="29500 is free", ids=("DDP112",)),),
)


def test_the_rank_that_speaks_says_the_finding_and_its_fix_alone() -> None:
    with pytest.raises(PreflightFailed) as failed:
        _concluded(FOUND, True, "raise")
    said = str(failed.value)
    assert said.startswith("error[DDP103]: 2 ranks run as threads of one process\n")
    assert "torchrun --nproc-per-node=2 jobs/train.py" in said
    assert "29500 is free" not in said and "DDP202" not in said
    assert failed.value.report is FOUND


def test_the_other_ranks_say_it_in_one_line() -> None:
    with pytest.raises(PreflightFailed) as failed:
        _concluded(FOUND, False, "raise")
    assert str(failed.value).startswith("DDP103 thread-launch: ") and "\n" not in str(failed.value)


def test_a_warning_is_the_whole_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert _concluded(FOUND, True, "warn") is FOUND
    assert "29500 is free" in capsys.readouterr().err
