"""Reports of ddp-doctor itself, one or several in a row as ranks print them, to facts."""

from __future__ import annotations

import json

import msgspec

from ddp_doctor.facts.report import Examined, ReportedFinding, ReportedRank
from ddp_doctor.model import Fact, Report

SCHEMA = "ddp-doctor/report/1"
MOST_REPORTS = 100_000


def looks_like_report(text: str) -> bool:
    """Whether a text begins with such a report."""
    head = text.lstrip()[:200]
    return head.startswith("{") and f'"{SCHEMA}"' in head


def read_reports(text: str, source: str) -> list[Fact]:
    """What the reports of a text say; raises ValueError where one of them is none."""
    facts: list[Fact] = []
    decoder = json.JSONDecoder()
    place = 0
    for _ in range(MOST_REPORTS):
        start = text.find("{", place)
        if start < 0:
            break
        try:
            content, place = decoder.raw_decode(text, start)
            report = msgspec.convert(content, Report)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise ValueError(f"not a report of ddp-doctor: {error}") from None
        facts += facts_of(report, source)
    return facts


def facts_of(report: Report, source: str) -> list[Fact]:
    """What one report says."""
    return [
        Examined(
            source=source,
            command=report.tool.command,
            version=report.tool.version,
            target=report.target,
            redacted=report.redacted,
        ),
        *(ReportedRank(source=source, row=row) for row in report.ranks),
        *(ReportedFinding(source=source, finding=finding) for finding in report.findings),
    ]
