"""Report to SARIF 2.1.0: findings as results, pages as rules, what could not tell as notifications."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from ddp_doctor.model import Finding, Fix, Report
from ddp_doctor.render import printable
from ddp_doctor.render.place import place_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a check beside its findings."""

    title: str
    page: str


def render(report: Report, root: str = "", rules: Mapping[str, Rule] | None = None, code: int = 0) -> str:
    """The report as one run. `rules` gives titles and pages by id, `code` is the exit code of the call."""
    report = printable(report)
    names = {finding.id: finding.name for finding in report.findings}
    order = {id_: place for place, id_ in enumerate(names)}
    known = rules or {}
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "ddp-doctor",
                "version": report.tool.version,
                "semanticVersion": report.tool.version,
                "rules": [_rule(id_, name, known.get(id_)) for id_, name in names.items()],
            }
        },
        "automationDetails": {"id": f"ddp-doctor/{report.tool.command}/"},
        "invocations": [_invocation(report, code)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, report, root, order[finding.id]) for finding in report.findings],
        "properties": {"verdict": msgspec.to_builtins(report.verdict), "target": msgspec.to_builtins(report.target)},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False) + "\n"


def _rule(id_: str, name: str, rule: Rule | None) -> dict[str, Any]:
    result: dict[str, Any] = {"id": id_, "name": "".join(word.capitalize() for word in re.split(r"\W", name))}
    if rule is not None:
        result["shortDescription"] = {"text": rule.title}
        result["fullDescription"] = {"text": rule.title}
        result["help"] = {"text": rule.page, "markdown": rule.page}
    return result


def _result(finding: Finding, report: Report, root: str, rule: int) -> dict[str, Any]:
    fixes = "\n\n".join(_fix(fix) for fix in finding.fixes)
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": finding.severity.value,
        "message": {"text": f"{finding.summary}\n\nwhy: {finding.because}\n\n{fixes}"},
        "properties": {
            "confidence": finding.confidence.value,
            "ranks": finding.ranks,
            "hosts": finding.hosts,
            "explains": finding.explains,
            "evidence": [f"{item.source}  {item.value}" for item in finding.evidence],
        },
    }
    place = place_of(finding, report)
    if place is not None:
        below = place.below(root)
        artifact: dict[str, Any] = {"uri": ("file://" if below.file.startswith("/") else "") + quote(below.file)}
        result["locations"] = [
            {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": below.line}}}
        ]
    return result


def _fix(fix: Fix) -> str:
    lines = [f"fix: {fix.title} (needs: {fix.needs})", *(f"  {command}" for command in fix.commands)]
    lines += [f"  {line}" for line in (fix.diff or "").splitlines()]
    return "\n".join(lines)


def _invocation(report: Report, code: int) -> dict[str, Any]:
    silent = [outcome for outcome in report.outcomes if outcome.status in ("unknown", "crashed")]
    return {
        "executionSuccessful": code < 2 or code in (4, 5),
        "exitCode": code,
        "toolExecutionNotifications": [
            {
                "level": "error" if outcome.status == "crashed" else "note",
                "message": {"text": f"{outcome.id} {outcome.status}: {outcome.reason}"},
                "associatedRule": {"id": outcome.id},
            }
            for outcome in silent
        ],
    }
