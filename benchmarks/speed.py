"""What the main job costs beside what people type today: `python benchmarks/speed.py [--python PATH] [--json]`.

Whole commands, started one after the other in turn so that a change of the machine's mood meets all of them, and judged
by their medians as ratios. `--python` is the interpreter whose torch is examined and in which the peers run; the doctor
runs in the interpreter that runs this file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TWO_RANKS = Path(__file__).with_name("two_ranks.py")


class Cost(NamedTuple):
    """One run of one command, in seconds."""

    wall: float
    cpu: float


class Bar(NamedTuple):
    """What is asked: `subject` costs at most `most` times `peer`, or at most `most` more seconds where there is no ratio."""

    what: str
    subject: str
    peer: str | None
    most: float
    measure: str = "wall"
    difference: bool = False


BARS = (
    Bar("run beside importing torch", "run", "import torch", 1.3),
    Bar("run beside torch.utils.collect_env", "run", "collect_env", 1.0),
    Bar("run beside two ranks under torchrun", "run", "torchrun", 0.65),
    Bar("--help", "--help", None, 0.35, "cpu"),
    Bar("explain", "explain", None, 0.35, "cpu"),
    Bar("checks", "checks", None, 0.35, "cpu"),
    Bar("import ddp_doctor over bare Python", "import ddp_doctor", "bare python", 0.030, difference=True),
)


def commands(python: str) -> dict[str, list[str]]:
    """Name -> command line, in the order of one round."""
    doctor = [sys.executable, "-m", "ddp_doctor"]
    return {
        "run": [*doctor, "run", "--nproc", "2", "--python", python],
        "import torch": [python, "-c", "import torch"],
        "collect_env": [python, "-m", "torch.utils.collect_env"],
        "torchrun": [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TWO_RANKS)],
        "--help": [*doctor, "--help"],
        "explain": [*doctor, "explain", "thread-launch"],
        "checks": [*doctor, "checks"],
        "import ddp_doctor": [sys.executable, "-c", "import ddp_doctor"],
        "bare python": [sys.executable, "-c", "pass"],
    }


def timed(command: list[str], environ: dict[str, str]) -> Cost:
    """Run it to its end and to end-of-file on its output; raises where its exit code is not 0."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"exit code {ran.returncode} of {' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured(python: str, runs: int) -> dict[str, list[Cost]]:
    """Name -> the cost of each run, after one round that fills the caches."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("DDP_DOCTOR", "TORCHELASTIC"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environ.pop(name, None)
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "checks")])
    costs: dict[str, list[Cost]] = {name: [] for name in commands(python)}
    for number in range(runs + 1):
        for name, command in commands(python).items():
            cost = timed(command, environ)
            if number:
                costs[name].append(cost)
        print(f"round {number} of {runs}", file=sys.stderr)
    return costs


def row(bar: Bar, costs: dict[str, list[Cost]]) -> dict[str, object]:
    """One line of the table: seconds of the subject, of the peer, and what the bar compares."""
    of_subject = [getattr(cost, bar.measure) for cost in costs[bar.subject]]
    of_peer = [getattr(cost, bar.measure) for cost in costs[bar.peer]] if bar.peer else []
    value = statistics.median(of_subject)
    if of_peer:
        peer = statistics.median(of_peer)
        value = value - peer if bar.difference else value / peer
    return {
        "what": bar.what,
        "measure": bar.measure,
        "seconds": spread(of_subject),
        "peer_seconds": spread(of_peer),
        "unit": "times" if of_peer and not bar.difference else "s",
        "value": round(value, 3),
        "bar": bar.most,
        "met": value <= bar.most,
    }


def spread(seconds: list[float]) -> dict[str, float] | None:
    """Median, least and most."""
    if not seconds:
        return None
    return {
        "median": round(statistics.median(seconds), 3),
        "min": round(min(seconds), 3),
        "max": round(max(seconds), 3),
    }


def table(rows: list[dict[str, object]]) -> str:
    """The rows as text, seconds as median (least to most)."""
    lines = [f"{'':38}{'seconds':>22}{'peer':>22}{'value':>12}{'bar':>8}"]
    for line in rows:
        shown = [
            f"{pair['median']:.2f} ({pair['min']:.2f} to {pair['max']:.2f})" if isinstance(pair, dict) else ""
            for pair in (line["seconds"], line["peer_seconds"])
        ]
        value = f"{line['value']} {'x' if line['unit'] == 'times' else 's'}"
        met = "" if line["met"] else "  missed"
        what = f"{line['what']}{', CPU' if line['measure'] == 'cpu' else ''}"
        lines.append(f"{what:38}{shown[0]:>22}{shown[1]:>22}{value:>12}{line['bar']:>8}{met}")
    return "\n".join(lines)


def main() -> int:
    """Print the table; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description="Measures the doctor beside named peers.")
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose torch is examined")
    parser.add_argument("--runs", type=int, default=11, help="alternating runs of each command")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    version = subprocess.check_output([given.python, "-c", "import torch; print(torch.__version__)"], text=True).strip()
    costs = measured(given.python, given.runs)
    rows = [row(bar, costs) for bar in BARS]
    if given.json:
        print(json.dumps({"torch": version, "runs": given.runs, "rows": rows}, indent=1))
    else:
        print(f"torch {version}, {given.runs} alternating runs, median (least to most)\n{table(rows)}")
    return 0 if all(line["met"] for line in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
