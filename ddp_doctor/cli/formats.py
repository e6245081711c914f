"""A report in the formats that are not for the person at the terminal."""

from __future__ import annotations

import os
from pathlib import Path

from ddp_doctor.model import Report
from ddp_doctor.packs import load_packs
from ddp_doctor.render import sarif


def rendered(format: str, report: Report, *, code: int, redact: bool) -> str:
    """The report in a format other than text. All but json are read by others, and get stand-ins where `redact`."""
    from ddp_doctor.render import github, html, json, junit, markdown

    if format == "json":
        return json.render(report)
    root = os.environ.get("GITHUB_WORKSPACE") or _here()
    if redact:
        from ddp_doctor.cli.bundle import redactor
        from ddp_doctor.redact import redacted_report

        names = redactor()
        report = redacted_report(report, names)
        root = names.text(root)  # paths in the report have stand-ins too
    if format == "github":
        return github.render(report, root)
    if format == "sarif":
        return sarif.render(report, root, _rules(report), code)
    if format == "junit":
        return junit.render(report, {check.id: check.name for check in load_packs().checks()})
    return html.render(report) if format == "html" else markdown.render(report)


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def _rules(report: Report) -> dict[str, sarif.Rule]:
    from ddp_doctor.cli.catalogue import pages

    named = {finding.id for finding in report.findings}
    return {page.id: sarif.Rule(title=page.title, page=page.page) for page in pages(load_packs()) if page.id in named}
