"""Whole scripts: correct ones stay silent, faulty ones give the finding that their first line names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from script_cases import CASES, apply, expected, findings, judged, read

from ddp_doctor.model import Severity

CORRECT = sorted((CASES / "correct").glob("*.py"))
FAULTY = sorted((CASES / "faulty").glob("*.py"))


@pytest.mark.parametrize("script", CORRECT, ids=lambda script: script.stem)
def test_a_correct_script_gives_nothing_at_warning_or_above(script: Path) -> None:
    assert [finding for finding in findings(script) if finding.severity is not Severity.NOTE] == []


@pytest.mark.parametrize("script", FAULTY, ids=lambda script: script.stem)
def test_a_faulty_script_gives_what_its_first_line_says(script: Path) -> None:
    wanted = expected(script)
    found = [finding for finding in findings(script) if finding.severity is not Severity.NOTE]
    assert [(finding.id, finding.severity.value) for finding in found] == [(wanted.id, wanted.severity)]
    (finding,) = found
    assert wanted.source in finding.summary
    assert wanted.source in [evidence.source for evidence in finding.evidence]
    assert all(fix.diff or fix.commands for fix in finding.fixes)


@pytest.mark.parametrize("script", FAULTY, ids=lambda script: script.stem)
def test_the_printed_diff_takes_the_finding_away(script: Path, tmp_path: Path) -> None:
    diffs = [fix.diff for finding in findings(script) for fix in finding.fixes if fix.diff]
    for diff in diffs[:1]:
        folder = tmp_path / "project"
        shutil.copytree(script.parent, folder)
        apply(diff, folder)
        assert [finding.id for finding in findings(folder / script.name)] == []


def test_enough_of_the_faulty_scripts_can_be_mended_by_a_diff() -> None:
    mended = [script for script in FAULTY if any(fix.diff for found in findings(script) for fix in found.fixes)]
    assert len(CORRECT) >= 25
    assert len(FAULTY) >= 30
    assert len(mended) >= len(FAULTY) // 2


def test_a_script_that_shows_nothing_leaves_its_checks_clear() -> None:
    outcomes = {
        judgement.check.id: judgement.outcome.status
        for judgement in judged(read(CASES / "correct" / "torchrun_ddp.py"))
    }
    assert {outcomes[id] for id in ("DDP103", "DDP104", "DDP107", "DDP115", "DDP116", "DDP601", "DDP605")} == {"clear"}
