"""JUnit documents: valid by the schema, and each outcome where a CI looks for it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import xmlschema
from reports import HOSTILE, everything, finding, report, undecided

from ddp_doctor.model import Ignored, Outcome, Report, Severity
from ddp_doctor.render import junit

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def cases(shown: Report) -> dict[str, ElementTree.Element]:
    """The cases of a valid document, by name; the counts are those of the cases."""
    text = junit.render(shown, {"DDP201": "dns-or-self-name"})
    SCHEMA.validate(text)
    suite = ElementTree.fromstring(text).find("testsuite")
    assert suite is not None
    found = suite.findall("testcase")
    for name, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == sum(case.find(name) is not None for case in found)
    assert int(suite.attrib["tests"]) == len(found)
    return {case.attrib["name"]: case for case in found}


def test_each_outcome_has_its_place() -> None:
    found = cases(report(finding(), finding("DDP202", "loopback-name", Severity.NOTE, summary="resolves to 127.0.1.1")))
    failure = found["DDP103 thread-launch"].find("failure")
    assert failure is not None and failure.attrib["type"] == "error"
    assert failure.attrib["message"] == "2 ranks run as threads of one process"
    assert "torchrun --nproc-per-node=2 jobs/train.py" in (failure.text or "")
    note = found["DDP202 loopback-name"]
    assert [child.tag for child in note] == ["system-out"] and "127.0.1.1" in (note[0].text or "")
    assert list(found["DDP201 dns-or-self-name"]) == []
    unknown, other = found["DDP407"].find("skipped"), found["DDP501"].find("skipped")
    assert unknown is not None and unknown.attrib["message"] == "unknown: libcuda gave no answer in 5.0 s"
    assert other is not None and other.attrib["message"] == "not applicable: no GPU here"
    crashed = found["DDP601"].find("error")
    assert crashed is not None and crashed.attrib["message"] == "KeyError: 'x'"


def test_a_check_with_several_findings_is_one_case() -> None:
    failure = cases(report(finding(), finding(summary="again")))["DDP103 thread-launch"].find("failure")
    assert (
        failure is not None and failure.attrib["message"].endswith("(and 1 more)") and "again" in (failure.text or "")
    )


def test_a_consequence_is_no_failure_of_its_own() -> None:
    shown = report(finding(explains=("DDP101",)))
    outcomes = (*shown.outcomes, Outcome(id="DDP101", status="hit"))
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    skipped = cases(Report(**{**fields, "outcomes": outcomes}))["DDP101"].find("skipped")
    assert skipped is not None and skipped.attrib["message"] == "explained: explained by DDP103"


def test_findings_of_the_doctor_itself_and_ignored_checks_are_cases() -> None:
    shown = report(finding("DDP901", "pack-failed", Severity.WARNING), ignored=(Ignored(id="DDP208", reason="ours"),))
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    found = cases(Report(**{**fields, "outcomes": ()}))
    assert found["DDP901 pack-failed"].find("failure") is not None
    skipped = found["DDP208"].find("skipped")
    assert skipped is not None and skipped.attrib["message"] == "ignored: ours"


@pytest.mark.parametrize("text", ["words", HOSTILE])
def test_whatever_was_observed_the_document_is_valid(text: str) -> None:
    assert cases(everything(text)) and cases(undecided(text))
