"""Scores triage on public reports: `python benchmarks/cases.py open.jsonl [--json] [-v]`.

Each case's evidence lines go through the corridor as one log. Top-1 is the verdict's finding, else the first candidate;
a claim is a verdict that is certain or likely.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scoring import Row

from ddp_doctor.examine import examine
from ddp_doctor.model import Facts
from ddp_doctor.packs import Loaded, load_packs
from ddp_doctor.readers import LogReader

SEED = 5
"""Splits the cases into three quarters that signatures may be tuned on and a quarter that only measures."""


def score(case: dict[str, Any], reader: LogReader, loaded: Loaded) -> dict[str, Any]:
    """What triage says of one case, against what is known of it."""
    text = "\n".join(case["evidence"])
    report = examine(
        "triage", loaded, known=Facts(reader.read(text.encode(), "report.log")), waiting=lambda facts: True
    )
    verdict = report.verdict
    first = verdict.finding or next(iter(verdict.candidates), None)
    right = {case["finding"], *case["also_accepted"]}
    return {
        "id": case["id"],
        "expected": case["finding"],
        "said": first,
        "confidence": verdict.confidence.value if verdict.confidence else None,
        "candidates": list(verdict.candidates),
        "exact": first in right,
        "family": first is not None and first[:4] in {each[:4] for each in right},
        "claim": verdict.finding is not None,
        "hard": case["hard"],
        "among": bool(right.intersection((*verdict.candidates, verdict.finding))),
    }


def told(path: Path) -> list[dict[str, Any]]:
    """The cases of a file of which the text tells the cause."""
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [case for case in cases if case["scored"] == "text"]


def scored(path: Path) -> Iterator[tuple[str, Callable[[], Row]]]:
    """The name of each case, and what scores it as a row."""
    loaded = load_packs(third_party=False)
    reader = LogReader(loaded.signatures())

    def one(case: dict[str, Any]) -> Row:
        said = score(case, reader, loaded)
        claims = said["claim"]
        return Row(
            mode="cases",
            name=case["id"],
            expected=(case["finding"], *case["also_accepted"]),
            said=said["said"] if claims else None,
            confidence=said["confidence"],
            candidates=tuple(said["candidates"]),
        )

    for case in told(path):
        yield case["id"], lambda case=case: one(case)  # type: ignore[misc]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of some cases, as fractions of all of them."""
    total = len(rows) or 1
    return {
        "cases": len(rows),
        "exact": sum(row["exact"] for row in rows) / total,
        "family": sum(row["family"] for row in rows) / total,
        "among candidates": sum(row["among"] for row in rows) / total,
        "claims": sum(row["claim"] for row in rows) / total,
        "wrong claims": sum(row["claim"] and not row["exact"] for row in rows) / total,
        "wrong certain": sum(row["confidence"] == "certain" and not row["exact"] for row in rows),
        "abstained": sum(not row["claim"] for row in rows) / total,
        "nothing said": sum(row["said"] is None for row in rows) / total,
    }


def main() -> int:
    """Print the figures; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=["tuned", "held-out"], help="list only the misses of one part")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every miss")
    options = parser.parse_args()
    cases = told(options.cases)
    loaded = load_packs(third_party=False)
    reader = LogReader(loaded.signatures())
    rows = [score(case, reader, loaded) for case in cases]
    ids = sorted(case["id"] for case in cases)
    random.Random(SEED).shuffle(ids)
    tuned = set(ids[: len(ids) * 3 // 4])
    parts = {
        "all": rows,
        "tuned": [row for row in rows if row["id"] in tuned],
        "held-out": [row for row in rows if row["id"] not in tuned],
        "hard": [row for row in rows if row["hard"]],
    }
    figures = {name: summary(part) for name, part in parts.items()}
    if options.json:
        print(json.dumps({"figures": figures, "cases": rows}, indent=1))
    else:
        for name, part in figures.items():
            print(f"{name:9}", "  ".join(f"{key} {value:.3g}" for key, value in part.items()))
        confusion = Counter((row["expected"][:4], (row["said"] or "none")[:4]) for row in rows if not row["family"])
        print("family confusion:", ", ".join(f"{a}->{b} {n}" for (a, b), n in confusion.most_common()))
        if options.verbose:
            evidence = {case["id"]: case["evidence"] for case in cases}
            for row in parts[options.part or "all"]:
                if not row["exact"]:
                    mark = "WRONG" if row["claim"] else "miss"
                    print(
                        f"{mark} {row['id']} {row['expected']}: {row['said']} {row['confidence'] or row['candidates']}"
                    )
                    for line in evidence[row["id"]]:
                        print("     ", line[:200])
    whole = figures["all"]
    met = (
        whole["exact"] >= 0.8
        and whole["family"] >= 0.9
        and whole["wrong claims"] <= 0.03
        and whole["wrong certain"] == 0
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
