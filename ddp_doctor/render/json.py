"""Report to JSON, schema `ddp-doctor/report/1`."""

from __future__ import annotations

from ddp_doctor.model import Report


def render(report: Report) -> str:
    """The report as JSON with a final newline."""
    return report.to_json() + "\n"
