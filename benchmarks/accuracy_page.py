"""Writes docs/accuracy.md and docs/accuracy.svg from the rows of benchmarks/accuracy.py."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("", "tests", "tests/live", "benchmarks")]

import in_place  # noqa: E402
from faults import FAULTS  # noqa: E402
from scoring import FAMILIES, Row, confused, confusion, figures  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
PLOT = ROOT / "docs" / "accuracy.svg"
MODES = {
    "attach": "`attach` to each live fault",
    "watch": "`watch` around each live fault",
    "run": "`run` in the ranks' place, in a shell, on described GPU nodes",
    "preflight": "`preflight()` in the ranks' place",
    "triage": "`triage` of the logs each left behind",
    "nccl": "trial communicator, real libnccl 2.18 to 2.32",
    "cases": "`triage` of public reports",
}
PEERS = {
    "stock": "stock PyTorch",
    "detail": "TORCH_DISTRIBUTED_DEBUG=DETAIL, TORCH_CPP_LOG_LEVEL=INFO",
    "monitored-barrier": "a monitored_barrier after init and before each collective",
    "py-spy": "`py-spy dump` of every process",
}
COLUMNS = ("exact", "top-1", "family", "right rank", "abstained", "wrong claims")
HEAD = """# Accuracy

How often the doctor names the right cause, beside what people use today, measured by `benchmarks/accuracy.py`
({machine}). This page is written by `python benchmarks/accuracy.py --docs FILE...` from its saved results; nothing on it is
typed by hand. What each fault is, and what has to be said of it, was written down before it was scored:
[live_faults.md](live_faults.md).

A claim is a verdict that is certain or likely. It is **exact** where it is one of the expected ids, and **wrong** where it is
not; everything else is an abstention. **top-1** also counts the first candidate of an abstention, **family** its hundred.
**Right rank**: exact, and exactly the expected ranks are named, of the faults where ranks are judged. A healthy setting must
give no error. Of what several ranks of a job were told, the surest counts, and one that is wrong and certain before all.
"""
RULE = """## What people use today

The same faults, left alone. The rule, which `benchmarks/stock_pytorch.py` holds word for word (`NAMES`, `SHOWS`): a baseline
names the cause where any single line that it printed holds words which say it, whatever else is printed. A count of clients
counts for a missing rank, a refused address for a wrong one, a frame of the function in which a rank is busy for a late
rank; a rank that is named must be a right one. That no line lies about the cause is not asked. Times are those of
PyTorch's default of 30 min (measured with 12 s, and multiplied), since until then nothing is printed; py-spy's are those of
the dumps alone, and reading them is the reader's.
"""


MET = """Every bar is met: of the live faults exact and right rank >= 97 %, half or more named certain, with a median of at
most 3 s; nothing wrong and certain; of the likely ones >= 85 % right; no error and at most one warning in all healthy
settings; of the public reports top-1 >= 84 % and wrong claims <= 2 %."""


def write(rows: Sequence[Row], rest: Mapping[str, Any], missed: Sequence[str]) -> None:
    """Both files."""
    parts = [
        HEAD.format(machine=rest.get("machine", "this machine")),
        _bars(missed),
        "## Figures\n\n" + _figures(rows),
        _calibration(rows),
        "## Time to verdict\n\n![time to verdict against the time-outs of PyTorch](accuracy.svg)\n\n" + _times(rows),
        RULE + "\n" + _baselines(rows),
        _confusion(rows),
        _each_fault(rows),
        _in_place(),
        _mutations(rest.get("mutations", {})),
        _healthy(rows),
        _quotes(rows),
    ]
    PAGE.write_text("\n\n".join(part.strip() for part in parts if part) + "\n", encoding="utf-8")
    PLOT.write_text(plot(rows), encoding="utf-8")


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    shown = ["| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *shown])


def percent(value: float | None) -> str:
    """A share as people read it."""
    return "" if value is None else f"{100 * value:.1f} %"


def _bars(missed: Sequence[str]) -> str:
    if not missed:
        return MET
    return "Bars that are not met:\n\n" + "\n".join(f"- {each.removeprefix('missed: ')}" for each in missed)


def _figures(rows: Sequence[Row]) -> str:
    lines = []
    for mode, words in MODES.items():
        told = figures(each for each in rows if each.mode == mode)
        if told["faults"] or told["healthy"]:
            seconds = [told[name] or "" for name in ("median s", "p95 s")]
            calm = [told[name] for name in ("healthy", "healthy errors", "healthy warnings")]
            shares = [percent(told[name]) for name in COLUMNS]
            lines.append((words, told["faults"], *shares, told["wrong certain"], *seconds, *calm))
    head = ("mode", "faults", *COLUMNS, "wrong certain", "median s", "p95 s", "healthy", "errors", "warnings")
    return table(head, lines)


def _calibration(rows: Sequence[Row]) -> str:
    lines = []
    for mode, words in MODES.items():
        told = [each for each in rows if each.mode == mode and not each.failed and not each.healthy]
        if told:
            certain = [each for each in told if each.said and each.confidence == "certain"]
            likely = [each for each in told if each.said and each.confidence == "likely"]
            lines.append(
                (
                    words,
                    len(certain),
                    sum(not each.exact for each in certain),
                    len(likely),
                    sum(not each.exact for each in likely),
                )
            )
    return "## Confidence\n\n" + table(("mode", "certain", "of them wrong", "likely", "of them wrong"), lines)


def _times(rows: Sequence[Row]) -> str:
    return (
        "A dot is a fault; the line is the median. A dot at the right edge is a fault about which nothing is ever printed. "
        "`watch` counts from the moment its patience is over, `run` and `preflight()` from their start, which holds the\n"
        f"seconds in which they wait for ranks that do not come ({in_place.WAIT:g} s here)."
    )


def _baselines(rows: Sequence[Row]) -> str:
    lines = []
    for mode, words in ({"attach": "ddp-doctor attach"} | PEERS).items():
        told = [each for each in rows if each.mode == mode and not each.failed and not each.healthy]
        if told:
            seconds = [each.seconds for each in told if each.seconds is not None]
            named = sum(each.exact for each in told)
            lines.append(
                (
                    words,
                    len(told),
                    named,
                    percent(named / len(told)),
                    f"{statistics.median(seconds):.0f} s" if seconds else "",
                )
            )
    return table(("what", "faults", "cause named", "", "median until it speaks"), lines)


def _confusion(rows: Sequence[Row]) -> str:
    names = [*FAMILIES.values(), "none"]
    parts = ["## Confusion\n\nRows are what was wrong, columns what was said first."]
    for mode in ("attach", "triage", "cases"):
        told = [each for each in rows if each.mode == mode]
        if told:
            found = confusion(told)
            lines = [(right, *(said.get(name, "") for name in names)) for right, said in found.items()]
            pairs = ", ".join(f"{pair} ({times})" for pair, times in list(confused(told).items())[:12])
            parts.append(f"{MODES[mode]}:\n\n" + table(("", *names), lines) + (f"\n\n{pairs}" if pairs else ""))
    return "\n\n".join(parts)


def _each_fault(rows: Sequence[Row]) -> str:
    by = {(each.mode, each.name): each for each in rows}
    modes = [
        mode
        for mode in ("attach", "watch", "run", "preflight", "triage", *PEERS)
        if any(each.mode == mode for each in rows)
    ]

    def cell(mode: str, name: str) -> str:
        each = by.get((mode, name))
        if each is None:
            return ""
        if each.failed:
            return "not started"
        if mode in PEERS:
            return "yes" if each.exact else "no"
        if each.ranks_right:
            return f"{each.said} {each.confidence}" if each.said else "silent, as it has to be"
        return (
            f"**{each.said}**{' other ranks' if each.exact else ''}"
            if each.said
            else f"unknown {each.first or ''}".strip()
        )

    lines = [(fault.name, " or ".join(fault.expected), *(cell(mode, fault.name) for mode in modes)) for fault in FAULTS]
    return "## Each live fault\n\n" + table(("fault", "expected", *modes), lines)


def _in_place() -> str:
    differs = [
        f"- {name}: {' or '.join(ids)} is right too: {why}" for name, (ids, _, why) in in_place.DIFFERENT.items()
    ]
    left = [f"- {name}: {why}" for name, why in in_place.NOT_SEEN.items()]
    left += [f"- {name}: by `run` only, which tries the ways between hosts" for name in in_place.ON_THE_WAY]
    return (
        "`run` and `preflight()` end before init, so an empty cell is a fault that happens in init or past it.\n\n"
        "Left out besides:\n\n"
        + "\n".join(left)
        + "\n\nWhere what is right differs before init:\n\n"
        + "\n".join(differs)
    )


def _mutations(rows: Mapping[str, Mapping[str, int]]) -> str:
    if not rows:
        return ""
    names = ("judged", "right", "abstained", "wrong", "wrong and certain")
    return (
        "## Damaged evidence\n\nLogs, public reports and the facts of live faults, damaged (`benchmarks/mutations.py`): what\n"
        "is lost may lead to `unknown`, never to a certain verdict that is wrong.\n\n"
        + table(("damage", *names), ((damage, *(row[name] for name in names)) for damage, row in rows.items()))
    )


def _healthy(rows: Sequence[Row]) -> str:
    lines = [
        (each.mode, each.name, ", ".join(each.errors), ", ".join(each.warnings))
        for each in rows
        if each.healthy and not each.failed and each.mode in MODES
    ]
    return f"## Healthy settings\n\n{len(lines)} settings.\n\n" + table(
        ("mode", "setting", "errors", "warnings"), lines
    )


def _quotes(rows: Sequence[Row]) -> str:
    lines = [
        (
            each.name,
            each.mode,
            "yes" if each.exact else "no",
            f"`{each.line.replace('`', '')}`" if each.line else "nothing",
        )
        for each in sorted(rows, key=lambda each: each.name)
        if each.mode in PEERS and not each.failed
    ]
    head = (
        "## What they said\n\nThe line that names the cause, else the first error; of py-spy else the first frame.\n\n"
    )
    return head + table(("fault", "what", "named", "line"), lines) if lines else ""


# --- the plot

WIDTH, LEFT, LANE, TOP = 860, 190, 62, 30
FIRST, LAST = 0.1, 10000.0
NEVER = 7000.0


def x_of(seconds: float) -> float:
    """The place of a time on the log axis."""
    inside = min(max(seconds, FIRST), LAST)
    return LEFT + (WIDTH - LEFT - 20) * math.log10(inside / FIRST) / math.log10(LAST / FIRST)


def plot(rows: Sequence[Row]) -> str:
    """Time to verdict of each fault and mode, as SVG."""
    lanes = [
        mode
        for mode in ("attach", "watch", "preflight", "run", *PEERS)
        if any(each.mode == mode and not each.healthy for each in rows)
    ]
    height = TOP + LANE * len(lanes) + 40
    bottom = height - 36
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for seconds, label in (
        (0.1, "0.1 s"),
        (1, "1 s"),
        (10, "10 s"),
        (60, "1 min"),
        (600, "10 min"),
        (1800, "30 min"),
        (NEVER, "never"),
    ):
        out.append(
            f'<line x1="{x_of(seconds):.0f}" y1="{TOP - 8}" x2="{x_of(seconds):.0f}" y2="{bottom}" stroke="#ddd"/>'
        )
        out.append(f'<text x="{x_of(seconds):.0f}" y="{bottom + 18}" text-anchor="middle" fill="#444">{label}</text>')
    for place, mode in enumerate(lanes):
        middle = TOP + LANE * place + LANE / 2
        told = [each for each in rows if each.mode == mode and not each.healthy and not each.failed]
        colour = "#b35900" if mode in PEERS else "#0059b3"
        out.append(
            f'<text x="10" y="{middle + 4:.0f}" fill="{colour}">{"" if mode in PEERS else "ddp-doctor "}{mode}</text>'
        )
        for number, each in enumerate(told):
            # spread over the lane, the same in every run
            y = middle + (number * 0.618 % 1 - 0.5) * (LANE - 22)
            out.append(
                f'<circle cx="{x_of(NEVER if each.seconds is None else each.seconds):.1f}" cy="{y:.1f}" r="2.5" '
                f'fill="{colour if each.exact else "none"}" stroke="{colour}" fill-opacity="0.6"/>'
            )
        if told:
            median = x_of(statistics.median(NEVER if each.seconds is None else each.seconds for each in told))
            ends = f'x1="{median:.1f}" y1="{middle - 22}" x2="{median:.1f}" y2="{middle + 22}"'
            out.append(f'<line {ends} stroke="{colour}" stroke-width="2"/>')
    out.append(
        f'<text x="{LEFT}" y="{TOP - 14}" fill="#444">time until something is said; filled: it names the cause</text>'
    )
    return "\n".join([*out, "</svg>", ""])
