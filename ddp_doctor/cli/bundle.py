"""`bundle`: what this node, a process or saved files show, redacted, in one file; and what is in such a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from ddp_doctor.bundle import Manifest, described, read_manifest, write_bundle
from ddp_doctor.cli.output import Output
from ddp_doctor.examine import Selection
from ddp_doctor.model import Report
from ddp_doctor.redact import Redactor

NOTHING_TO_EXAMINE = 5


def redactor(environ: dict[str, str] | None = None) -> Redactor:
    """A redactor that knows this machine's name and this user's."""
    variables = dict(os.environ) if environ is None else environ
    home = variables.get("HOME", "").rstrip("/").rpartition("/")[2]
    users = (variables.get("USER", ""), variables.get("LOGNAME", ""), variables.get("SUDO_USER", ""), home)
    return Redactor(hosts=(os.uname().nodename,), users=[user for user in users if user])


def make_bundle(
    out: Output, path: Path, sources: Sequence[str], *, timeout: float, probe_timeout: float, redact: bool
) -> int:
    """Examine what `sources` name (PIDs or paths; nothing is this node) and write the bundle; the exit code."""
    paths = [source for source in sources if not source.isdigit() or Path(source).exists()]
    pids = [int(source) for source in sources if source not in paths]
    if paths and pids:
        raise typer.BadParameter("--from takes PIDs or paths, not both")
    report = _examined(out, paths, pids, timeout, probe_timeout)
    if report.verdict.status == "nothing":
        print("ddp-doctor: nothing to examine, so no bundle was written", file=sys.stderr)
        return NOTHING_TO_EXAMINE
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        manifest = write_bundle(temporary, out.facts, report, paths, redactor() if redact else None)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        print(f"ddp-doctor: cannot write {path}: {error.strerror}", file=sys.stderr)
        return 3
    for line in _written(path, manifest, report):
        print(line)
    return 0


def _examined(out: Output, paths: list[str], pids: list[int], timeout: float, probe_timeout: float) -> Report:
    everything = Selection()
    if pids:
        from ddp_doctor.cli.attach import examine_job

        return examine_job(out, pids, everything, timeout, probe_timeout, every=False, stacks=True, native=False)
    if paths:
        from ddp_doctor.cli.job import examine_files

        return examine_files(out, paths, everything, timeout)
    from ddp_doctor.cli.run import examine_node
    from ddp_doctor.cli.wish import Wish

    return examine_node(out, Wish(selection=everything, timeout=timeout, probe_timeout=probe_timeout))


def _written(path: Path, manifest: Manifest, report: Report) -> list[str]:
    inside = f"{sum(manifest.facts.values())} facts, {len(manifest.logs)} logs"
    if manifest.redacted:
        replaced = ", ".join(f"{count} {what}" for what, count in manifest.replaced.items())
        note = f"replaced: {replaced}"
    else:
        note = "nothing was replaced (--no-redact)"
    verdict = report.verdict
    return [
        f"wrote {path}: {inside}; {note}",
        f"verdict: {verdict.finding or verdict.status}" + (f", {verdict.summary}" if not manifest.redacted else ""),
        f"look before you send it: ddp-doctor bundle inspect {path}",
        f"whoever gets it types: ddp-doctor triage {path.name}",
    ]


def inspect_bundle(path: Path, *, verbose: bool) -> int:
    """Print what a bundle holds; the exit code."""
    try:
        manifest, lines = read_manifest(path)
        for line in described(manifest, lines, verbose=verbose):
            print(line)
    except ValueError as error:
        print(f"ddp-doctor: {error}", file=sys.stderr)
        return NOTHING_TO_EXAMINE
    return 0
