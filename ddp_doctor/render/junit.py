"""Report to JUnit XML: a test case per check."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping

from ddp_doctor.model import Finding, Outcome, Report, Severity
from ddp_doctor.render import printable
from ddp_doctor.render.text import Style, finding_lines

_STYLE = Style(verbose=1)


def render(report: Report, names: Mapping[str, str] | None = None) -> str:
    """The report as a document that the schema of Jenkins' xUnit plugin accepts. `names` gives names of checks by id.

    An error or a warning is a failure and a note is output of a case that passed. What could not tell, did not apply, was
    ignored or is the consequence of another finding was skipped for that reason. A check that raised is an error.
    """
    report = printable(report)
    cases = [*_cases(report, names or {})]
    counts = {name: sum(case.find(name) is not None for case in cases) for name in ("failure", "error", "skipped")}
    totals = {
        "name": "ddp-doctor",
        "time": f"{report.tool.seconds:.3f}",
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
    }
    document = ElementTree.Element("testsuites", totals)
    suite = ElementTree.SubElement(
        document,
        "testsuite",
        totals | {"name": f"ddp-doctor {report.tool.command}", "skipped": str(counts["skipped"])},
    )
    if report.target.hosts:
        suite.set("hostname", ",".join(report.target.hosts))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    ElementTree.indent(document)
    return ElementTree.tostring(document, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _properties(report: Report) -> dict[str, str]:
    known = {
        "version": report.tool.version,
        "verdict": report.verdict.finding or report.verdict.status,
        "summary": report.verdict.summary,
        "torch": report.target.torch,
        "nccl": report.target.nccl,
        "world_size": report.target.world_size,
    }
    return {name: str(value) for name, value in known.items() if value not in (None, "")}


def _cases(report: Report, names: Mapping[str, str]) -> Iterator[ElementTree.Element]:
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.id, []).append(finding)
    explained = {echo: finding.id for finding in report.findings for echo in finding.explains}
    for outcome in report.outcomes:
        findings = found.pop(outcome.id, [])
        name = findings[0].name if findings else names.get(outcome.id, "")
        case = _case(report, f"{outcome.id} {name}".rstrip(), outcome.ms / 1000)
        if findings:
            _found(case, findings)
        else:
            _without_finding(case, outcome, explained.get(outcome.id, ""))
        yield case
    for findings in found.values():
        case = _case(report, f"{findings[0].id} {findings[0].name}", 0.0)
        _found(case, findings)
        yield case
    for ignored in report.ignored:
        case = _case(report, ignored.id, 0.0)
        _skipped(case, "ignored", ignored.reason)
        yield case


def _case(report: Report, name: str, seconds: float) -> ElementTree.Element:
    classname = f"ddp-doctor.{report.tool.command}"
    return ElementTree.Element("testcase", name=name, classname=classname, time=f"{seconds:.3f}")


def _found(case: ElementTree.Element, findings: list[Finding]) -> None:
    text = "\n\n".join("\n".join(line.rstrip() for line in finding_lines(each, _STYLE)) for each in findings)
    worst = min(findings, key=lambda finding: finding.severity.rank)
    if worst.severity is Severity.NOTE:
        ElementTree.SubElement(case, "system-out").text = text
        return
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    failure = ElementTree.SubElement(case, "failure", type=worst.severity.value, message=worst.summary + more)
    failure.text = text


def _without_finding(case: ElementTree.Element, outcome: Outcome, cause: str) -> None:
    if outcome.status == "crashed":
        ElementTree.SubElement(case, "error", type="crashed", message=outcome.reason)
    elif outcome.status == "hit":
        _skipped(case, "explained", f"explained by {cause}" if cause else "not what holds these ranks up")
    elif outcome.status != "clear":
        _skipped(case, outcome.status, outcome.reason)


def _skipped(case: ElementTree.Element, kind: str, reason: str) -> None:
    message = f"{kind.replace('-', ' ')}: {reason}" if reason else kind.replace("-", " ")
    ElementTree.SubElement(case, "skipped", type=kind, message=message)
