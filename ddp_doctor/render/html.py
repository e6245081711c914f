"""Report to HTML: one file that needs no script, no network and no other file, in the order of the text report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ddp_doctor.model import Confidence, Finding, Fix, RankRow, Report, Severity
from ddp_doctor.render import printable
from ddp_doctor.render.text import Style, compress, header_parts, silenced, summary_lines

_MARKS = {"clear": "✓", "unknown": "?", "hit": "✗", "crashed": "!", "not-applicable": "–"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --dim: #5b6570; --paper: #fff; --edge: #d5dae0; --box: #f4f6f8;
  --error: #b3261e; --warning: #8a5a00; --note: #1a5fa8; --clear: #1c7037; --unknown: #8a5a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7eb; --dim: #98a2ad; --paper: #14181c; --edge: #343b43;
  --box: #1e242a; --error: #ff8a80; --warning: #f0b75a; --note: #7fb8f5; --clear: #79d194; --unknown: #f0b75a } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.35rem; line-height: 1.3; margin: .3rem 0 }
h2 { font-size: 1.1rem; line-height: 1.35; margin: 0 0 .5rem }
header p, .dim, dt, .needs { color: var(--dim) }
.needs { display: block; font-size: .9rem }
header p { margin: 0 }
section { margin: 1.2rem 0 }
.finding { border-left: .3rem solid var(--colour); padding: .1rem 0 .1rem .9rem }
.error { --colour: var(--error) } .warning { --colour: var(--warning) } .note { --colour: var(--note) }
.clear { --colour: var(--clear) } .unknown, .crashed, .nothing { --colour: var(--unknown) }
.problem, .hit { --colour: var(--error) } .healthy { --colour: var(--clear) }
b, h1, .mark { color: var(--colour, inherit) }
.mark { display: inline-block; width: 1.3em; font-weight: 700 }
dl { margin: .4rem 0 } dt { float: left; clear: left; width: 4rem } dd { margin: 0 0 .35rem 4.2rem }
pre { margin: .3rem 0; padding: .6rem .8rem; background: var(--box); border: 1px solid var(--edge); border-radius: .4rem;
  overflow-x: auto; font: 13px/1.5 ui-monospace, monospace; overflow-wrap: normal }
ul { margin: .2rem 0; padding: 0; list-style: none }
li { padding: .15rem 0 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; overflow-wrap: normal }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--edge); vertical-align: top }
th { color: var(--dim); font-weight: 600 }
code { font: .9em ui-monospace, monospace }
summary { cursor: pointer; padding: .3rem 0 }
footer { border-top: 1px solid var(--edge); margin-top: 1.5rem; padding-top: .6rem }
@media print { details > * { display: block } }
"""


def render(report: Report) -> str:
    """The report as a page with a final newline; everything that was observed is escaped."""
    report = printable(report)
    serious = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    notes = [finding for finding in report.findings if finding.severity is Severity.NOTE]
    verdict = report.verdict
    title = f"{verdict.finding}: {verdict.summary}" if verdict.finding else f"{verdict.status}: {verdict.summary}"
    parts = [
        _header(report),
        *_ranks(report.ranks),
        *_undecided(report),
        *(_finding(finding) for finding in serious),
        *_areas(report),
        *_pairs(report),
        *_folded("notes", notes, (_finding(note) for note in notes)),
        *_unknowns(report),
        *_checks(report),
        *_probes(report),
        _footer(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>ddp-doctor: {escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _header(report: Report) -> str:
    verdict = report.verdict
    named = next((finding.name for finding in report.findings if finding.id == verdict.finding), "")
    sure = f" ({verdict.confidence.value})" if verdict.confidence else ""
    head = f"{verdict.finding} {named}{sure}" if verdict.finding else verdict.status
    parts = [f"<p>{escape(' · '.join(header_parts(report)))}</p>"]
    if report.target.why_python:
        parts.append(
            f"<p>torch is examined in {escape(report.target.python or '')} ({escape(report.target.why_python)})</p>"
        )
    summary = f": {escape(verdict.summary)}" if verdict.summary else ""
    return f'<header>{"".join(parts)}<h1 class="{verdict.status}">{escape(head)}{summary}</h1></header>'


def _ranks(rows: Iterable[RankRow]) -> Iterator[str]:
    cells = [
        (
            "?" if row.rank is None else row.rank,
            row.host,
            row.pid or "",
            f"{row.call} <- {row.where}" if row.where and row.call else row.where or row.call,
            row.stage,
            row.state,
            "" if row.since_s is None else f"{row.since_s:.0f} s",
            "" if row.cpu is None else f"{100 * row.cpu:.0f} %",
            compress(wait.rank for wait in row.waits_for if wait.rank is not None),
        )
        for row in rows
    ]
    if cells:
        names = ("rank", "host", "pid", "where", "stage", "state", "since", "CPU", "waits for")
        shown = [place for place in range(len(names)) if any(row[place] != "" for row in cells)]
        yield _table(
            [names[place] for place in shown], ([str(row[place]) for place in shown] for row in cells), "ranks"
        )


def _undecided(report: Report) -> Iterator[str]:
    verdict = report.verdict
    if verdict.status == "unknown" and (verdict.candidates or verdict.separate):
        lines = [f"<p>candidates: {escape(', '.join(verdict.candidates))}</p>"] if verdict.candidates else []
        if verdict.separate:
            lines += [f"<p>next: {escape(verdict.separate.title)}</p>", *_code(verdict.separate.commands)]
        yield f'<section class="finding unknown">{"".join(lines)}</section>'


def _finding(finding: Finding) -> str:
    sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence.value})"
    rows = []
    if finding.ranks:
        rows.append(("ranks", escape(compress(finding.ranks)) + (f" on {escape(', '.join(finding.hosts))}")))
    rows.append(("why", escape(finding.because)))
    rows += [("fix", _fix(fix)) for fix in finding.fixes]
    rows.append(("more", f"<code>ddp-doctor explain {escape(finding.name)}</code>"))
    if finding.explains:
        rows.append(("also", f"explains {escape(', '.join(finding.explains))}"))
    evidence = ((item.source, item.value) for item in finding.evidence)
    folded = [f"{line.source}  {line.times}x  {line.text}" for line in finding.folded]
    return (
        f'<section class="finding {finding.severity.value}">'
        f"<h2><b>{finding.severity.value}[{escape(finding.id)}]</b> {escape(finding.summary)}{sure}</h2>"
        + _table(("seen in", "what"), evidence, "evidence")
        + "<dl>"
        + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)
        + "</dl>"
        + "".join(_folded("consequences", folded, _code(folded)))
        + "</section>"
    )


def _fix(fix: Fix) -> str:
    diff = (fix.diff.rstrip("\n"),) if fix.diff else ()
    needs = f' <span class="needs">needs: {escape(fix.needs)}</span>'
    return escape(fix.title) + needs + "".join((*_code(fix.commands), *_code(diff)))


def _areas(report: Report) -> Iterator[str]:
    items = [
        f'<li class="{area.status}"><span class="mark">{_MARKS[area.status]}</span>{escape(area.title)} '
        f'<span class="dim">{escape(area.text)}</span></li>'
        for area in report.areas
        if area.status != "hit"
    ]
    if items:
        yield f"<section><ul>{''.join(items)}</ul></section>"


def _pairs(report: Report) -> Iterator[str]:
    if any(pair.route != "p2p" for pair in report.pairs):
        rows = (
            (pair.host, str(pair.first), str(pair.second), pair.route.upper(), pair.link, pair.why)
            for pair in report.pairs
        )
        yield _table(("host", "GPU", "reads", "route", "link", "why"), rows, "pairs")


def _unknowns(report: Report) -> Iterator[str]:
    items = [
        f'<li class="{status}"><span class="mark">{_MARKS[status]}</span>{escape(", ".join(ids))} {escape(reason)}</li>'
        for (status, reason), ids in silenced(report).items()
    ]
    if items:
        yield f"<section><ul>{''.join(items)}</ul></section>"


def _checks(report: Report) -> Iterator[str]:
    rows = [(each.id, each.status, f"{each.ms} ms", each.reason) for each in report.outcomes]
    yield from _folded("checks", rows, (_table(("id", "outcome", "time", "reason"), rows, "checks"),))


def _probes(report: Report) -> Iterator[str]:
    rows = [(each.name, each.status, f"{each.ms} ms", each.reason) for each in report.probes]
    yield from _folded("probes", rows, (_table(("probe", "status", "time", "reason"), rows, "probes"),))


def _footer(report: Report) -> str:
    replaced = report.redacted
    said = list(summary_lines(report, Style(width=10_000)))
    if replaced.hosts or replaced.users or replaced.secrets:
        said.append(
            f"stand-ins: {replaced.hosts} hosts and addresses, {replaced.users} users, {replaced.secrets} secrets"
        )
    return f"<footer>{'<br>'.join(map(escape, said))}</footer>"


def _folded(title: str, things: Sequence[object], body: Iterable[str]) -> Iterator[str]:
    if things:
        name = title.removesuffix("s") if len(things) == 1 else title
        yield f"<details><summary>{len(things)} {name}</summary>{''.join(body)}</details>"


def _table(names: Iterable[str], rows: Iterable[Iterable[str]], kind: str) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="{kind}"><tr>{head}</tr>{body}</table></div>'


def _code(lines: Iterable[str]) -> Iterator[str]:
    text = "\n".join(lines)
    if text:
        yield f"<pre>{escape(text)}</pre>"
