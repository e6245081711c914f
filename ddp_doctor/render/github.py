"""Report to GitHub Actions: the worst findings as annotations at the user's own line, all details in groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_doctor.model import Finding, Report, Severity
from ddp_doctor.render import printable
from ddp_doctor.render.place import place_of
from ddp_doctor.render.text import Style, finding_lines, note_lines, summary_lines, unknown_lines

MOST_ANNOTATIONS = 10
"""GitHub shows ten errors and ten warnings of a step and drops the rest without a word."""
_STYLE = Style(verbose=1)


def render(report: Report, root: str = "") -> str:
    """The report as workflow commands and groups. Files below `root` are named relative to it, as GitHub wants them."""
    report = printable(report)
    lines: list[str] = []
    serious = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    for finding in serious[:MOST_ANNOTATIONS]:
        lines.append(_annotation(finding, report, root))
        lines += _group(f"{finding.id} {finding.name}: evidence, why and fix", finding_lines(finding, _STYLE))
    if report.verdict.status == "unknown":
        lines.append(_command("warning", {"title": "ddp-doctor: no verdict"}, _undecided(report)))
    rest = serious[MOST_ANNOTATIONS:]
    if rest:
        lines += _group(
            f"{len(rest)} more findings", (line for finding in rest for line in finding_lines(finding, _STYLE))
        )
    notes = [finding for finding in report.findings if finding.severity is Severity.NOTE]
    if notes:
        lines += _group("notes", (line for note in notes for line in note_lines(note, _STYLE)))
    lines += _group("checks that could not tell", unknown_lines(report, _STYLE))
    lines += (_harmless(part) for line in summary_lines(report, _STYLE) for part in line.split("\n"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _annotation(finding: Finding, report: Report, root: str) -> str:
    place = place_of(finding, report)
    properties = {"title": f"{finding.id} {finding.name}"}
    if place is not None:
        below = place.below(root)
        properties = {"file": below.file, "line": str(below.line)} | properties
    fix = finding.fixes[0]
    message = "\n".join((f"{finding.summary}. Fix: {fix.title}", *fix.commands))
    return _command(finding.severity.value, properties, message)


def _undecided(report: Report) -> str:
    verdict = report.verdict
    said = [verdict.summary]
    if verdict.candidates:
        said.append(f"candidates: {', '.join(verdict.candidates)}")
    if verdict.separate:
        said.append("\n".join((f"next: {verdict.separate.title}", *verdict.separate.commands)))
    return "; ".join(said)


def _command(name: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {given}::{_data(message)}"


def _group(title: str, lines: Iterable[str]) -> Iterator[str]:
    inside = [_harmless(part) for line in lines for part in line.split("\n")]
    if inside:
        yield f"::group::{_data(title)}"
        yield from inside
        yield "::endgroup::"


def _data(text: str) -> str:
    return text.replace("##[", "## [").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _harmless(line: str) -> str:
    """A line that the runner prints and does not obey, whatever the log it quotes says."""
    line = line.replace("##[", "## [")
    return f"| {line.lstrip()}" if line.lstrip().startswith("::") else line
