"""The live faults that run in CI, and that the page about them says what is tested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from faults import CONTROLS, FAULTS, Fault, a_member, running
from jobs import doctor

PAGE = Path(__file__).parents[2] / "docs" / "live_faults.md"
QUICK = [fault for fault in (*FAULTS, *CONTROLS) if fault.quick]


def test_the_page_lists_every_fault_as_it_is_tested() -> None:
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.read_text().partition("## What stock")[0].splitlines()
        if line.startswith("| ")
    ]
    listed = {row[0]: row[1:] for row in rows if row[0] not in ("fault", "control")}
    for fault in (*FAULTS, *CONTROLS):
        ranks = "any" if fault.ranks is None else ", ".join(map(str, fault.ranks))
        expected = [fault.says, " or ".join(fault.expected), ranks] if fault.expected else [fault.says, "no error"]
        assert listed.pop(fault.name) == expected
    assert listed == {}
    assert len(FAULTS) >= 50 and len(CONTROLS) >= 10


def test_faults_have_names_of_their_own() -> None:
    names = [fault.name for fault in (*FAULTS, *CONTROLS)]
    assert len(set(names)) == len(names)


@pytest.mark.live
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_attach(fault: Fault) -> None:
    if fault.why_not():
        pytest.skip(fault.why_not())
    with running(fault) as started:
        _, report = doctor("attach", str(a_member(fault, started)))
    if not fault.expected:
        assert [finding["id"] for finding in report["findings"] if finding["severity"] == "error"] == []
        return
    assert report["verdict"]["finding"] in fault.expected
    finding = next(each for each in report["findings"] if each["id"] == report["verdict"]["finding"])
    assert fault.ranks is None or tuple(finding["ranks"]) == fault.ranks
