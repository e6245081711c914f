"""What attaching to hung ranks costs: `python benchmarks/attach_speed.py [--ranks 8,64] [--runs 5] [--json]`.

Whole commands beside one `py-spy dump` of each rank, in turn; medians are judged. CPU is user and system time of the
command and all its children.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from speed import ROOT, Cost

sys.path.insert(0, str(ROOT))

from ddp_doctor.probes.job import installed_py_spy

HUNG_RANKS = Path(__file__).with_name("hung_ranks.py")
MOST_WALL = {8: 1.0, 64: 3.0}
MOST_CPU_OF_DUMPS, MORE_CPU = 2.0, 0.5
EXPECTED = "DDP101"


@contextmanager
def hung(number: int) -> Iterator[list[int]]:
    """The PIDs of the process that started them and of that many hung ranks."""
    port = random.randrange(20000, 32000)
    with subprocess.Popen(
        [sys.executable, str(HUNG_RANKS), str(number), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            yield [parent.pid, *map(int, children)]
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def spent(*commands: list[str]) -> tuple[Cost, str]:
    """The cost of running these one after the other, and what the last one printed."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # compiled once, as by an installation, and not beside the sources
    environ["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir(), f"ddp-doctor-bytecode-{os.getpid()}"))
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "checks")])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    for command in commands:
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environ, stdin=subprocess.DEVNULL, check=False
        )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), ran.stdout


def measured(number: int, runs: int) -> dict[str, float | int]:
    """Medians over that many rounds after one that fills the caches."""
    attaches, dumps = [], []
    with hung(number) as pids:
        attach = [sys.executable, "-m", "ddp_doctor", "attach", str(pids[0]), "--format", "json"]
        for turn in range(runs + 1):
            cost, printed = spent(attach)
            verdict = json.loads(printed)["verdict"]
            if verdict["finding"] != EXPECTED:
                raise SystemExit(f"expected {EXPECTED}, got {verdict}")
            beside, _ = spent(*([installed_py_spy(), "dump", "--pid", str(pid)] for pid in pids[1:]))
            if turn:
                attaches.append(cost)
                dumps.append(beside)
    cpu = statistics.median(cost.cpu for cost in attaches)
    dumped = statistics.median(cost.cpu for cost in dumps)
    return {
        "ranks": number,
        "wall": round(statistics.median(cost.wall for cost in attaches), 3),
        "wall_least": round(min(cost.wall for cost in attaches), 3),
        "wall_most": round(max(cost.wall for cost in attaches), 3),
        "wall_bar": MOST_WALL.get(number, 0.0),
        "cpu": round(cpu, 3),
        "cpu_of_dumps": round(dumped, 3),
        "cpu_bar": round(MOST_CPU_OF_DUMPS * dumped + MORE_CPU, 3),
    }


def main() -> int:
    """Print the figures; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description="Measures attach beside py-spy dump.")
    parser.add_argument("--ranks", default="8,64", help="numbers of hung ranks")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    given = parser.parse_args()
    rows = [measured(int(number), given.runs) for number in given.ranks.split(",")]
    if given.json:
        print(json.dumps(rows))
    met = True
    for row in rows:
        fast = not row["wall_bar"] or row["wall"] <= row["wall_bar"]
        cheap = row["cpu"] <= row["cpu_bar"]
        met &= fast and cheap
        if not given.json:
            print(
                f"{row['ranks']:3} ranks: verdict after {row['wall']:.2f} s ({row['wall_least']:.2f} to "
                f"{row['wall_most']:.2f}; bar {row['wall_bar']:.1f}), CPU {row['cpu']:.2f} s "
                f"(py-spy dump of each {row['cpu_of_dumps']:.2f} s; bar {row['cpu_bar']:.2f})"
                f"{'' if fast and cheap else '  missed'}"
            )
    if len(rows) > 1 and not given.json:
        # seconds per further rank between the smallest and each larger number
        first, last = rows[0], rows[-1]
        slope = (last["wall"] - first["wall"]) / (last["ranks"] - first["ranks"])
        each = first["wall"] / first["ranks"]
        print(f"{1000 * slope:.0f} ms per further rank, {1000 * each:.0f} ms each of {first['ranks']}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
