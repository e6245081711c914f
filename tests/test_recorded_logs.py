"""Logs recorded by tests/record_logs.py: healthy ones say nothing at warning or above; faulty ones never blame another cause.

`expected.toml` beside the logs of a fault holds the id that the live examination finds (`id`; `live`, where several are
right), and `verdict`: such an id where the lines alone tell it, else `unknown`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "live"))
import faults as live_faults

from ddp_doctor.cli.job import _rows
from ddp_doctor.examine import examine
from ddp_doctor.model import Facts, Report, Severity
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOGS = Path(__file__).parent / "cases" / "logs"
LOADED = load_packs(third_party=False)
READER = LogReader(LOADED.signatures())


def cases(kind: str) -> list[Path]:
    return sorted(folder for folder in (LOGS / kind).iterdir() if folder.is_dir())


def triage(folder: Path) -> Report:
    return triage_of({file.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.log"))})


def triage_of(logs: Mapping[str, str]) -> Report:
    """The report on these files, name -> text."""
    facts = [
        fact
        for place, (name, text) in enumerate(logs.items())
        for fact in READER.read(text.encode(), name, place << 20)
    ]
    return examine("triage", LOADED, known=Facts(facts), waiting=lambda facts: True, rows=_rows)


def test_there_are_enough() -> None:
    assert len(cases("healthy")) >= 30
    assert {path.name.split("-")[1] for path in cases("healthy") if path.name.startswith("nccl-")} >= {
        "2.18.3",
        "2.30.7",
        "2.32.3",
    }


@pytest.mark.parametrize("folder", cases("healthy"), ids=lambda folder: folder.name)
def test_a_healthy_log_has_no_warning(folder: Path) -> None:
    report = triage(folder)
    assert {finding.severity for finding in report.findings} <= {Severity.NOTE}
    assert report.verdict.finding is None


def expected_of(folder: Path) -> tuple[list[str], str]:
    """The ids that the live examination finds, and the verdict on the logs alone."""
    told = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    return told.get("live") or [told["id"]], told["verdict"]


@pytest.mark.parametrize("folder", [*cases("faulty"), *cases("live")], ids=lambda folder: folder.name)
def test_a_fault_is_told_as_far_as_its_lines_tell_it(folder: Path) -> None:
    live, expected = expected_of(folder)
    verdict = triage(folder).verdict
    assert (verdict.finding or verdict.status) == expected
    assert expected in (*live, "unknown")
    printed = any(file.stat().st_size for file in folder.glob("*.log"))
    if verdict.finding is None and printed:
        assert verdict.candidates and verdict.separate is not None


def test_every_live_fault_is_recorded() -> None:
    assert {folder.name for folder in cases("live")} == {fault.name for fault in live_faults.FAULTS}
