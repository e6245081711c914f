"""The folder in which reports of `watch` are collected."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ddp_doctor.model import Report
from ddp_doctor.render import json, text


def collect_report(report: Report, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Write a report to $DDP_DOCTOR_REPORT_DIR as text and as JSON, if it is set; the text file."""
    folder = environ.get("DDP_DOCTOR_REPORT_DIR")
    return write_report(report, Path(folder), f"pid{os.getpid()}") if folder else None


def write_report(report: Report, folder: Path | None, name: str) -> Path:
    """Write a report as text and as JSON to a folder, by default a new temporary one; the text file."""
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="ddp-doctor-"))
    folder.mkdir(parents=True, exist_ok=True)
    hosts = "-".join(report.target.hosts[:1])
    base = folder / f"ddp-doctor-{hosts or 'node'}-{name}"
    path = base.with_name(base.name + ".txt")
    path.write_text(text.render(report), encoding="utf-8")
    base.with_name(base.name + ".json").write_text(json.render(report), encoding="utf-8")
    return path
