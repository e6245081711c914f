"""What a verdict is worth beside what was known: rows, one per fault and mode, and the figures of many of them.

A claim is a `verdict.finding`, which is certain or likely. It is exact where it is one of the expected ids, and wrong
where it is not. Everything else is an abstention; its first candidate counts for the family, and for `top-1`.
Ranks are right where exactly the expected ones are named. Of a healthy setting, an error is a wrong claim.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

FAMILIES = {"1": "launch", "2": "rendezvous", "3": "network", "4": "GPU", "5": "host software", "6": "program"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fault or healthy setting (`expected` is empty) in one mode. `seconds` is the time to the verdict."""

    mode: str
    name: str
    expected: tuple[str, ...]
    ranks: tuple[int, ...] | None = None
    said: str | None = None
    confidence: str | None = None
    candidates: tuple[str, ...] = ()
    told: tuple[int, ...] = ()
    """The ranks that the finding names."""
    errors: tuple[str, ...] = ()
    certain_errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float | None = None
    line: str = ""
    """What a baseline printed that names the cause, else the first it printed."""
    failed: str = ""
    """Why it could not be started; such a row is in no figure."""

    @property
    def healthy(self) -> bool:
        return not self.expected

    @property
    def exact(self) -> bool:
        return not self.errors if self.healthy else self.said in self.expected

    @property
    def first(self) -> str | None:
        return self.said or next(iter(self.candidates), None)

    @property
    def top1(self) -> bool:
        return self.exact if self.healthy else self.first in self.expected

    @property
    def family(self) -> bool:
        if self.healthy:
            return self.exact
        return self.first is not None and self.first[:4] in {each[:4] for each in self.expected}

    @property
    def ranks_right(self) -> bool:
        return self.exact and (self.ranks is None or self.told == self.ranks)

    @property
    def claims(self) -> bool:
        return bool(self.errors) if self.healthy else self.said is not None

    @property
    def wrong(self) -> bool:
        return self.claims and not self.exact

    @property
    def wrong_certain(self) -> bool:
        return bool(self.certain_errors) if self.healthy else self.wrong and self.confidence == "certain"


def row(
    mode: str,
    name: str,
    expected: Sequence[str],
    ranks: Sequence[int] | None,
    report: Mapping[str, Any],
    seconds: float | None = None,
) -> Row:
    """The row of a report as `--format json` holds it."""
    verdict, findings = report["verdict"], report["findings"]
    cause = next((each for each in findings if each["id"] == verdict["finding"]), None)
    errors = [each for each in findings if each["severity"] == "error"]
    return Row(
        mode=mode,
        name=name,
        expected=tuple(expected),
        ranks=None if ranks is None else tuple(ranks),
        said=verdict["finding"],
        confidence=verdict.get("confidence"),
        candidates=tuple(verdict["candidates"]),
        told=tuple(cause["ranks"]) if cause else (),
        errors=tuple(each["id"] for each in errors),
        certain_errors=tuple(each["id"] for each in errors if each["confidence"] == "certain"),
        warnings=tuple(each["id"] for each in findings if each["severity"] == "warning"),
        seconds=seconds,
        failed=report.get("error", ""),
    )


def surest(rows: Sequence[Row]) -> Row:
    """Of what several ranks of one job were told, what a reader would believe: an error before the warning of another.

    One that is wrong and certain is it.
    """
    order = {"certain": 0, "likely": 1}
    return min(
        rows,
        key=lambda each: (not each.wrong_certain, each.said not in each.errors, order.get(each.confidence or "", 2)),
    )


def figures(rows: Iterable[Row]) -> dict[str, Any]:
    """The figures of the faults and of the healthy settings among some rows; shares are of all faults."""
    every = list(rows)
    ran = [each for each in every if not each.failed]
    faults, healthy = [each for each in ran if not each.healthy], [each for each in ran if each.healthy]
    located = [each for each in faults if each.ranks is not None]
    total, seconds = len(faults), sorted(each.seconds for each in faults if each.seconds is not None)
    sure = [each for each in faults if each.said and each.confidence == "certain"]
    likely = [each for each in faults if each.said and each.confidence == "likely"]
    return {
        "faults": total,
        "exact": share(sum(each.exact for each in faults), total),
        "top-1": share(sum(each.top1 for each in faults), total),
        "family": share(sum(each.family for each in faults), total),
        "right rank": share(sum(each.ranks_right for each in located), len(located)),
        "abstained": share(sum(not each.claims for each in faults), total),
        "wrong claims": share(sum(each.wrong for each in faults), total),
        "wrong certain": sum(each.wrong_certain for each in ran),
        "named certain": share(len(sure), total),
        "likely right": share(sum(each.exact for each in likely), len(likely)),
        "median s": round(statistics.median(seconds), 2) if seconds else None,
        "p95 s": round(seconds[math.ceil(0.95 * len(seconds)) - 1], 2) if seconds else None,
        "healthy": len(healthy),
        "healthy errors": sum(len(each.errors) for each in healthy),
        "healthy warnings": sum(len(each.warnings) for each in healthy),
        "not started": len(every) - len(ran),
    }


def share(part: int, whole: int) -> float | None:
    """A fraction, None of nothing."""
    return round(part / whole, 4) if whole else None


def confusion(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Family of the expected cause -> family that was said first, or `none` -> how often."""
    table: dict[str, Counter[str]] = {}
    for each in rows:
        if each.failed or each.healthy:
            continue
        right = each.first if each.top1 and each.first else each.expected[0]
        table.setdefault(family_of(right), Counter())[family_of(each.first)] += 1
    return {right: dict(said) for right, said in sorted(table.items())}


def family_of(finding: str | None) -> str:
    """The family of an id in words."""
    return FAMILIES.get(finding[3], "other") if finding else "none"


def confused(rows: Iterable[Row]) -> dict[str, int]:
    """`expected -> said` of single ids that differ."""
    pairs = Counter(
        f"{'|'.join(each.expected)} -> {each.first or 'none'}"
        for each in rows
        if not each.failed and not each.healthy and not each.top1
    )
    return dict(pairs.most_common())
