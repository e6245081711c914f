"""Triages the recorded logs of faults and compares with what the live examination of each finds.

    python benchmarks/recorded_faults.py [-v]

Prints `fault | live | triage | same, unknown or WRONG` for the live faults of torch and for those of the real libnccl.
WRONG, a cause that is not the fault's, must not occur.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "checks"), str(ROOT / "tests")]

from test_recorded_logs import cases, expected_of, triage  # noqa: E402


def main() -> int:
    """Print the table; 1 if a log is blamed on another cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also what is missing where the verdict is unknown"
    )
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for folder in (*cases("live"), *cases("faulty")):
        live, _ = expected_of(folder)
        verdict = triage(folder).verdict
        said = verdict.finding or f"{verdict.status} {','.join(verdict.candidates[:3])}".strip()
        how = "same" if verdict.finding in live else "WRONG" if verdict.finding else "unknown"
        counts[how] += 1
        print(f"{folder.name:44} {'|'.join(live):16} {said:28} {how}")
        if options.verbose and how == "unknown":
            print(f"    {verdict.summary}\n    {verdict.separate}")
    print(f"{sum(counts.values())} recorded faults: " + ", ".join(f"{count} {how}" for how, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
