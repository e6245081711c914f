"""Report to text for a person: the verdict first, then evidence, why, fix; one summary line last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ddp_doctor.model import Confidence, Evidence, Finding, Fix, Outcome, RankRow, Report, Severity, Stage, Target
from ddp_doctor.render import printable

_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "ok": "32", "unknown": "33", "bold": "1", "dim": "2"}


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How text is laid out: width in columns, colour, whether the output can show more than ASCII, and verbosity."""

    width: int = 100
    colour: bool = False
    unicode: bool = True
    verbose: int = 0

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, where colours are on."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colour else text

    def mark(self, status: str) -> str:
        """The sign of an outcome; its meaning never hangs on colour alone."""
        signs = {"clear": "✓", "unknown": "?", "hit": "✗", "crashed": "!"} if self.unicode else {}
        plain = {"clear": "ok", "unknown": "??", "hit": "!!", "crashed": "!!"}
        colour = {"clear": "ok", "unknown": "unknown", "hit": "error", "crashed": "unknown"}[status]
        return self.paint((signs or plain)[status], colour)


def render(report: Report, style: Style | None = None) -> str:
    """The report as text with a final newline."""
    style = style or Style()
    report = printable(report)
    lines = [*_header(report, style), ""]
    serious = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    notes = [finding for finding in report.findings if finding.severity is Severity.NOTE]
    if report.ranks:
        lines += [*_ranks(report.ranks, style), ""]
    if report.verdict.status == "unknown" and (serious or report.verdict.candidates or report.verdict.separate):
        lines += [*_undecided(report, style), ""]
    for finding in serious:
        lines += [*finding_lines(finding, style), ""]
    body = [
        *_areas(report, style),
        *_pairs(report, style),
        *(line for note in notes for line in note_lines(note, style)),
        *unknown_lines(report, style),
    ]
    if body:
        lines += [*body, ""]
    if style.verbose:
        lines += [*_everything(report), ""]
    lines += summary_lines(report, style)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if style.unicode else text.encode("ascii", "replace").decode()


def _header(report: Report, style: Style) -> Iterator[str]:
    yield from _wrapped("   ".join(header_parts(report)), style, "")
    target = report.target
    if target.why_python:
        yield from _wrapped(f"torch is examined in {target.python} ({target.why_python})", style, "")


def header_parts(report: Report) -> list[str]:
    """What was examined, in a few words each."""
    target = report.target
    parts = [f"ddp-doctor {report.tool.version}", *target.hosts[:3]]
    if target.torch:
        parts.append(f"torch {target.torch}")
    if target.nccl:
        parts.append(f"NCCL {target.nccl}")
    if target.gpus:
        parts.append(f"{target.gpus} x {target.gpu_name or 'GPU'}")
    # what has ended and never had a number may have been a helper
    here = sum(row.pid is not None and (row.rank is not None or row.state != "exited") for row in report.ranks)
    if report.ranks and (report.tool.command == "attach" or (report.tool.command in ("watch", "triage") and here)):
        by = f", started by {target.launcher}" if target.launcher else ""
        parts.append(f"{here} {'rank' if here == 1 else 'ranks'} of world size {target.world_size or '?'}{by}")
    if report.tool.command == "run":
        parts.append(_launched(target))
    if target.merged:
        parts.append(target.merged)
    return parts


def _launched(target: Target) -> str:
    if not target.launcher:
        return "started by no launcher" if target.rank_variables else "no rank variables in this shell"
    return "rank variables set by hand" if target.launcher == "by hand" else f"launched by {target.launcher}"


def finding_lines(finding: Finding, style: Style) -> Iterator[str]:
    """One finding: sentence, evidence, why, fixes."""
    head = f"{finding.severity.value}[{finding.id}]"
    sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence.value})"
    first, *rest = textwrap.wrap(f"{head}: {finding.summary}{sure}", style.width, subsequent_indent="  ") or [head]
    yield style.paint(head, finding.severity.value) + style.paint(first[len(head) :], "bold")
    yield from rest
    if finding.ranks:
        yield f"  ranks    {compress(finding.ranks)}"
    yield from _evidence(finding.evidence, style)
    yield from _field("why", finding.because, style)
    for fix in finding.fixes:
        yield from _fix(fix, style)
    if style.verbose:
        for folded in finding.folded:
            yield f"  folded   {folded.source}  {folded.times}x  {folded.text}"
    yield from _field("more", f"ddp-doctor explain {finding.name}", style)
    if finding.explains:
        yield f"  This also explains: {', '.join(finding.explains)}."


def _evidence(evidence: Iterable[Evidence], style: Style) -> Iterator[str]:
    items = list(evidence)
    shown = items if style.verbose else items[:8]
    width = min(28, max((len(item.source) for item in shown), default=0))
    for item in shown:
        label = item.source.ljust(width)
        yield from _wrapped(f"{label}   {item.value}", style, "  ", " " * (width + 5))
    if len(items) > len(shown):
        yield f"  and {len(items) - len(shown)} more (-v shows them)"


def _fix(fix: Fix, style: Style) -> Iterator[str]:
    lines = list(_field("fix", fix.title, style))
    needs = f"needs: {fix.needs}"
    room = style.width - len(lines[-1]) - len(needs)
    if room >= 3:
        lines[-1] += " " * room + style.paint(needs, "dim")
    else:
        lines.append(f"       {needs}")
    yield from lines
    # commands are pasted, so they are never wrapped
    for command in fix.commands:
        yield f"         {command}"
    if fix.diff:
        for line in fix.diff.rstrip("\n").splitlines():
            yield f"         {line}"


def _field(name: str, text: str, style: Style) -> Iterator[str]:
    yield from _wrapped(f"{name:<5}{text}", style, "  ", "       ")


def note_lines(finding: Finding, style: Style) -> Iterator[str]:
    """One note, in a sentence."""
    head = style.paint(f"note[{finding.id}]", "note")
    yield from _wrapped(f"note[{finding.id}]: {finding.summary}; {finding.because}", style, "", "  ", head)
    if style.verbose:
        yield from _evidence(finding.evidence, style)
        for fix in finding.fixes:
            yield from _fix(fix, style)


def _areas(report: Report, style: Style) -> Iterator[str]:
    width = max((len(area.title) for area in report.areas), default=0)
    for area in report.areas:
        if area.status == "hit":
            continue
        text = f"{area.title.ljust(width)}   {area.text}"
        mark = style.mark(area.status)
        yield from _wrapped(f"? {text}", style, "", " " * (width + 5), f"{mark} ", skip=2)


def _pairs(report: Report, style: Style) -> Iterator[str]:
    """How NCCL joins each pair of GPUs, unless it is P2P everywhere: a row reads and writes the GPU of the column."""
    if not style.verbose and all(pair.route == "p2p" for pair in report.pairs):
        return
    for host in dict.fromkeys(pair.host for pair in report.pairs):
        routes = {(pair.first, pair.second): pair.route.upper() for pair in report.pairs if pair.host == host}
        gpus = sorted({gpu for pair in routes for gpu in pair})
        width = max(6, *(len(f"GPU{gpu}") + 2 for gpu in gpus))
        for name, *cells in [
            ("", *(f"GPU{gpu}" for gpu in gpus)),
            *((f"GPU{row}", *("-" if row == gpu else routes.get((row, gpu), "?") for gpu in gpus)) for row in gpus),
        ]:
            yield f"  {name.ljust(width)}{''.join(cell.ljust(width) for cell in cells)}"


def unknown_lines(report: Report, style: Style) -> Iterator[str]:
    """A paragraph per reason why checks could not tell."""
    for (status, reason), ids in silenced(report).items():
        said = "" if status == "unknown" else "the check itself failed: "
        text = f"{', '.join(ids)} {said}{reason}"
        yield from _wrapped(f"? {text}", style, "", "  ", f"{style.mark(status)} ", skip=2)


def silenced(report: Report) -> dict[tuple[str, str], list[str]]:
    """(status, reason) -> checks that could not tell: a driver that gives no answer silences a dozen."""
    checks: dict[tuple[str, str], list[str]] = {}
    for outcome in report.outcomes:
        if outcome.status in ("unknown", "crashed"):
            checks.setdefault((outcome.status, outcome.reason), []).append(outcome.id)
    return checks


def _undecided(report: Report, style: Style) -> Iterator[str]:
    verdict = report.verdict
    text = f"undecided: {verdict.summary}"
    if verdict.candidates:
        text += f"; candidates: {', '.join(verdict.candidates)}"
    yield from _wrapped(text, style, "", "  ")
    if verdict.separate:
        yield from _field("next", verdict.separate.title, style)
        for command in verdict.separate.commands:
            yield f"         {command}"


def _ranks(rows: Sequence[RankRow], style: Style) -> Iterator[str]:
    blamed = {wait.rank for row in rows for wait in row.waits_for} - {row.rank for row in rows if row.waits_for}
    table = [("rank", "pid", "where", "stage", "state", "since", "CPU", "")]
    table += [
        (
            "?" if row.rank is None else str(row.rank),
            "-" if row.pid is None and row.state == "exited" else str(row.pid or "?"),
            _where(row, style.width - 45),
            row.stage,
            "" if row.stage == Stage.NOT_STARTED.label else row.state,
            "" if row.since_s is None else f"{row.since_s:.0f} s",
            "" if row.cpu is None else f"{100 * row.cpu:.0f} %",
            "<- waited for" if row.rank is not None and row.rank in blamed else "",
        )
        for row in rows
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    shown = [column for column in range(len(widths)) if any(row[column] for row in table[1:])]
    for row in table:
        yield " " + "  ".join(row[column].ljust(widths[column]) for column in shown)


def _where(row: RankRow, width: int) -> str:
    text = f"{row.call} <- {row.where}" if row.where and row.call else row.where or row.call
    return text if len(text) <= max(width, 30) else text[: max(width, 30) - 3] + "..."


def _everything(report: Report) -> Iterator[str]:
    yield "checks"
    for outcome in report.outcomes:
        yield f"  {outcome.id}  {outcome.status:<14} {outcome.ms:>5} ms  {outcome.reason}"
    yield "probes"
    for probe in report.probes:
        yield f"  {probe.name:<16} {probe.status:<8} {probe.ms:>6} ms  {probe.reason}"


def summary_lines(report: Report, style: Style) -> Iterator[str]:
    """What the examination came to, last of all."""
    if report.interrupted:
        yield f"{report.interrupted}: what was found so far stands above"
    silent = [probe for probe in report.probes if probe.status == "timeout"]
    if silent:
        yield from _wrapped(
            "no answer: " + "; ".join(f"{probe.name} ({probe.reason})" for probe in silent), style, "", "  "
        )
    for left in report.left_behind:
        yield from _wrapped(
            f"left behind: PID {left.pid} ({left.worker}) was killed and does not die; the kernel holds it",
            style,
            "",
            "  ",
        )
    for ignored in report.ignored:
        yield f"ignored {ignored.id}" + (f": {ignored.reason}" if ignored.reason else "")
    found = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    counted = ", ".join(_counts(report.outcomes))
    seconds = f"{report.tool.seconds:.1f} s"
    if found:
        errors = sum(finding.severity is Severity.ERROR for finding in found)
        kinds = [_plural(errors, "error"), _plural(len(found) - errors, "warning")]
        text = f"{' and '.join(kind for kind in kinds if kind)} found: {counted}, {seconds}"
    elif report.verdict.status == "healthy":
        text = f"no problem found: {counted}, {seconds}"
    elif report.verdict.status == "nothing":
        why = f": {report.verdict.summary}" if report.verdict.summary else ""
        text = f"nothing to examine{why}, {seconds}"
    else:
        text = f"no verdict: {report.verdict.summary}; {counted}, {seconds}"
    yield from _wrapped(text, style, "", "  ")
    if report.tool.command == "run" and report.verdict.status == "healthy":
        looked = f"{len(report.target.hosts)} nodes" if len(report.target.hosts) > 1 else "one node"
        yield from _wrapped(f"This looked at {looked}; the way between nodes was not tested.", style, "")


def _counts(outcomes: tuple[Outcome, ...]) -> Iterator[str]:
    yield f"{len(outcomes)} checks"
    for status in ("clear", "not-applicable", "unknown", "crashed"):
        number = sum(outcome.status == status for outcome in outcomes)
        if number:
            yield f"{number} {status.replace('-', ' ')}"


def _plural(number: int, word: str) -> str:
    return "" if not number else f"{number} {word}" if number == 1 else f"{number} {word}s"


def _wrapped(
    text: str, style: Style, first: str, rest: str | None = None, head: str = "", skip: int = 0
) -> Iterator[str]:
    """Lines of at most the width. `head` replaces the unpainted text of the same visible length (or `skip` characters)."""
    lines = textwrap.wrap(
        text,
        style.width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=True,
    )
    if lines and head:
        visible = skip or len(text.split(":", 1)[0])
        lines[0] = head + lines[0][visible:]
    yield from lines


def compress(ranks: Iterable[int]) -> str:
    """Sorted numbers as ranges: `0-6,8-15`."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
