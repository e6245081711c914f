"""Report to Markdown for a ticket: the verdict, its evidence and fix, and a block of versions at the end."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.model import Confidence, Finding, Fix, Report, Severity
from ddp_doctor.render import printable
from ddp_doctor.render.text import compress

MOST_EVIDENCE = 20


def render(report: Report) -> str:
    """The report as Markdown with a final newline."""
    report = printable(report)
    parts = [_verdict(report)]
    serious = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    notes = [finding for finding in report.findings if finding.severity is Severity.NOTE]
    parts += ["\n".join(_finding(finding)) for finding in serious]
    if report.ranks:
        parts.append("\n".join(_ranks(report)))
    if notes:
        parts.append("\n".join(["### Notes", "", *(f"- {_inline(_note(note))}" for note in notes)]))
    unknown = [outcome for outcome in report.outcomes if outcome.status in ("unknown", "crashed")]
    if unknown:
        lines = [f"- {outcome.id}: {_inline(outcome.reason)}" for outcome in unknown]
        parts.append(
            "\n".join(["<details><summary>Checks that could not tell</summary>", "", *lines, "", "</details>"])
        )
    parts.append("\n".join(_versions(report)))
    return "\n\n".join(parts) + "\n"


def _verdict(report: Report) -> str:
    verdict = report.verdict
    if verdict.finding:
        name = next((each.name for each in report.findings if each.id == verdict.finding), "")
        sure = verdict.confidence.value if verdict.confidence else ""
        return f"## {verdict.finding} {name} ({sure})\n\n{_inline(verdict.summary)}"
    lines = [f"## ddp-doctor: {verdict.status}", "", _inline(verdict.summary)]
    if verdict.candidates:
        lines += ["", f"Candidates: {', '.join(verdict.candidates)}"]
    if verdict.separate:
        lines += ["", f"Next: {_inline(verdict.separate.title)}", "", *_block(verdict.separate.commands, "sh")]
    return "\n".join(lines)


def _finding(finding: Finding) -> Iterator[str]:
    sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence.value})"
    yield f"### {finding.severity.value} {finding.id}: {_inline(finding.summary)}{sure}"
    yield ""
    if finding.ranks:
        yield f"Ranks {compress(finding.ranks)}" + (f" on {', '.join(finding.hosts)}" if finding.hosts else "")
        yield ""
    yield f"Why: {_inline(finding.because)}"
    yield ""
    shown = finding.evidence[:MOST_EVIDENCE]
    yield from _block([f"{item.source}  {item.value}" for item in shown], "text")
    if len(finding.evidence) > len(shown):
        yield f"and {len(finding.evidence) - len(shown)} more"
    for fix in finding.fixes:
        yield ""
        yield from _fix(fix)
    if finding.explains:
        yield ""
        yield f"This also explains {', '.join(finding.explains)}."


def _fix(fix: Fix) -> Iterator[str]:
    yield f"Fix: {_inline(fix.title)} (needs: {_inline(fix.needs)})"
    if fix.commands:
        yield ""
        yield from _block(fix.commands, "sh")
    if fix.diff:
        yield ""
        yield from _block(fix.diff.rstrip("\n").splitlines(), "diff")


def _ranks(report: Report) -> Iterator[str]:
    yield "| rank | host | pid | stage | state | where |"
    yield "|--:|---|--:|---|---|---|"
    for row in report.ranks:
        where = f"{row.call} <- {row.where}" if row.where else row.call
        cells = ("?" if row.rank is None else row.rank, row.host, row.pid or "?", row.stage, row.state, where)
        yield "| " + " | ".join(_inline(str(cell)).replace("|", "\\|") for cell in cells) + " |"


def _note(note: Finding) -> str:
    return f"{note.id}: {note.summary}; {note.because}"


def _versions(report: Report) -> Iterator[str]:
    target, tool = report.target, report.tool
    yield "### Versions"
    yield ""
    known = {
        "ddp-doctor": f"{tool.version} {tool.command}",
        "torch": target.torch,
        "NCCL": target.nccl,
        "GPUs": f"{target.gpus} x {target.gpu_name}" if target.gpus and target.gpu_name else target.gpus,
        "launcher": target.launcher,
        "world size": target.world_size,
        "hosts": ", ".join(target.hosts) or None,
        "Python": target.python,
        "stand-ins": f"{report.redacted.hosts} hosts and addresses, {report.redacted.users} users, "
        f"{report.redacted.secrets} secrets",
    }
    yield from _block([f"{name}: {value}" for name, value in known.items() if value is not None], "text")


def _block(lines: list[str] | tuple[str, ...], language: str) -> list[str]:
    """A fenced block; the fence is longer than any that the lines hold."""
    longest = max((len(line) - len(line.lstrip("`")) for line in lines), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]


def _inline(text: str) -> str:
    """Text that stays text: what came from a log opens no tag, and mentions nobody."""
    flat = " ".join(text.split())
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")
