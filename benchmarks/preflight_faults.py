"""Ranks that meet in preflight(), healthy and not: does everybody end in time, with the same verdict and the same names?

    python benchmarks/preflight_faults.py [--sizes 2,8,64] [--only NAME,...] [--timeout 20] [--by-hand] [--show]

Prints one line per size and fault: ranks that ended, the slowest of them, verdicts, whether all are the same, whether the
right cause and ranks are named, and what a rank was left with that it had not before.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "live")]

from meetings import Rank, change, meet, world  # noqa: E402

Case = tuple[list[Rank], str | None, list[int] | None]


def cases(size: int, launched: bool, timeout: float) -> dict[str, Case]:
    """Name -> the ranks to start, the id to be named (None: nothing at warning or above), the ranks to be named."""
    healthy = world(size, launched=launched)
    # one more that never comes, so that the meeting is still on when something happens to another
    waiting = world(size + 1, launched=launched)[:size]
    after_zero = [waiting[0], *(Rank(each.variables, "late=1.5") for each in waiting[1:])]
    last = size - 1
    nowhere = [Rank(each.variables | {"MASTER_ADDR": "no-such-host.invalid"}) for each in healthy]
    return {
        "healthy": (healthy, None, None),
        "missing": (healthy[:last], "DDP101", [last]),
        "missing-zero": (healthy[1:], "DDP101", [0]),
        "late": (change(healthy, last, f"late={timeout / 3}"), None, None),
        "too-late": (change(healthy, last, f"late={timeout + 10}"), "DDP101", [last]),
        "crashed": (change(waiting, last, f"die={timeout / 2}"), "DDP101", [last]),
        "host-crashed": (change(after_zero, 0, f"die={timeout / 2}"), "DDP101", [0]),
        "stopped": (change(waiting, last, f"stop={timeout / 2}"), "DDP608", [last]),
        "host-stopped": (change(after_zero, 0, f"stop={timeout / 4}"), "DDP101", [0]),
        "duplicate": (change(healthy, last, RANK="0"), "DDP116", [0]),
        "world-size": (change(healthy, last, WORLD_SIZE=str(size + 1)), "DDP117", None if size == 2 else [last]),
        "master-port": (change(healthy, last, MASTER_PORT="29999"), "DDP111", None if size == 2 else [last]),
        "name": (nowhere, "DDP201", None),
        "port-taken": (healthy, "DDP112", None),
    }


def right(name: str, case: Case) -> tuple[tuple[str, ...], list[int] | None]:
    """The ids that may be named, and the ranks."""
    _, expected, ranks = case
    # rank 0 came before it was stopped, or it never came; a port that is taken keeps rank 0 from coming
    also = {"host-stopped": ("DDP608",), "port-taken": ("DDP209", "DDP101"), "too-late": ("DDP604",)}.get(name, ())
    return ((expected, *also) if expected else (), ranks)


def report_of(told: dict[str, Any]) -> dict[str, Any]:
    """What a rank was told, in the shape of a report."""
    findings = [
        dict(zip(("id", "severity", "confidence", "ranks", "summary"), each, strict=True)) for each in told["findings"]
    ]
    cause = next((each for each in findings if each["id"] == told["verdict"]), None)
    confidence = cause["confidence"] if cause else None
    return {
        "verdict": {"finding": told["verdict"], "confidence": confidence, "candidates": []},
        "findings": findings,
    }


def run(name: str, case: Case, timeout: float) -> tuple[list[dict[str, Any]], float]:
    """What the ranks were told, and the wall seconds of all of it."""
    ranks = case[0]
    with closing(socket.socket()) as holder:
        if name == "port-taken":
            holder.bind(("", int(ranks[0].variables["MASTER_PORT"])))
            holder.listen()
        started = time.monotonic()
        told = [each for each in meet(ranks, timeout, patience=120) if each is not None]
    return told, time.monotonic() - started


def main() -> int:
    """Run the set; exit code 0 if everything is as expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="2,8")
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    failed = 0
    for size in map(int, options.sizes.split(",")):
        for name, case in cases(size, not options.by_hand, options.timeout).items():
            if options.only and name not in options.only.split(","):
                continue
            told, wall = run(name, case, options.timeout)
            failed += not judged(size, name, case, told, wall, options.timeout)
            if options.show:
                for each in told:
                    print("   ", each["rank"], each["seconds"], each["findings"], each["raised"][:1000])
    return 1 if failed else 0


def judged(size: int, name: str, case: Case, told: list[dict[str, Any]], wall: float, timeout: float) -> bool:
    _, expected, ranks = case
    if name == "too-late":
        told = [each for each in told if each["rank"] != str(size - 1)]
    verdicts = Counter((each["verdict"], each["summary"]) for each in told)
    slowest = max(each["seconds"] for each in told)
    serious = [f for f in told[0]["findings"] if f[1] != "note"]
    right = told[0]["verdict"] == expected
    if name == "host-stopped" and told[0]["verdict"] == "DDP608":
        # it came before it was stopped; else it never came
        right, expected = True, "DDP608"
    if name == "port-taken":
        right = any(f[0] == "DDP112" for f in serious)
    named = ranks is None or all(
        any(f[0] == expected and set(ranks) <= set(f[3]) for f in each["findings"]) for each in told
    )
    left = sorted({name for each in told for name in each["left"]})
    ok = len(verdicts) == 1 and slowest <= timeout + 2 and right and named and not left
    ids = dict(Counter(each["verdict"] for each in told))
    raised = sum(bool(each["raised"]) for each in told)
    print(
        f"{'ok ' if ok else 'BAD'} {size:>3} {name:<13} {len(told):>3} ended, slowest {slowest:5.1f} s, "
        f"wall {wall:5.1f} s, {len(verdicts)} verdict(s), {ids} raised {raised}"
        f"{'' if named else ' WRONG RANKS'}{f' LEFT {left}' if left else ''}",
        flush=True,
    )
    if not ok:
        for (verdict, summary), number in verdicts.items():
            print(f"      {number}x {verdict}: {summary}")
    return ok


if __name__ == "__main__":
    sys.exit(main())
