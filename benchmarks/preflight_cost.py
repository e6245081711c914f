"""What preflight() costs a healthy job of two ranks: wall time of the same job with and without it, in turns.

    python benchmarks/preflight_cost.py [--runs 21]

Prints the seconds that preflight() itself took in the slower rank (median), its CPU seconds, and the ratio of the jobs'
median wall times. The package is one with bytecode, as an installation leaves it.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from installed import installed

JOB = """
import time
import torch
import torch.distributed as dist
{preflight}
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
assert value.item() == dist.get_world_size()
dist.destroy_process_group()
"""
PREFLIGHT = """
began, cpu = time.perf_counter(), time.process_time()
import ddp_doctor
ddp_doctor.preflight()
print(f"took {time.perf_counter() - began:.3f} s, cpu {time.process_time() - cpu:.3f} s", flush=True)
"""


def job(script: Path, packages: str) -> tuple[float, list[tuple[float, float]]]:
    """Wall seconds of one job, and the seconds and CPU seconds each rank spent in preflight."""
    environ = os.environ | {"PYTHONPATH": packages, "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        capture_output=True, text=True, env=environ, check=True,
    )  # fmt: skip
    wall = time.monotonic() - started
    return wall, [(float(a), float(b)) for a, b in re.findall(r"took ([\d.]+) s, cpu ([\d.]+) s", done.stdout)]


def measured(runs: int) -> dict[str, float]:
    """Medians over that many jobs with preflight() and as many without."""
    walls: dict[bool, list[float]] = {True: [], False: []}
    took, cpu = [], []
    with tempfile.TemporaryDirectory() as folder:
        scripts = {}
        packages = installed(Path(folder))
        for with_it in (True, False):
            scripts[with_it] = Path(folder, f"job_{with_it}.py")
            scripts[with_it].write_text(JOB.replace("{preflight}", PREFLIGHT if with_it else ""), encoding="utf-8")
        for turn in range(2 * runs):
            with_it = turn % 4 in (0, 3)  # with, without, without, with: a slow drift hits both alike
            wall, spent = job(scripts[with_it], packages)
            walls[with_it].append(wall)
            if with_it:
                took.append(max(seconds for seconds, _ in spent))
                cpu.append(sum(seconds for _, seconds in spent))
    return {
        "with": statistics.median(walls[True]),
        "without": statistics.median(walls[False]),
        "took": statistics.median(took),
        "least": min(took),
        "cpu": statistics.median(cpu),
    }


def main() -> None:
    """Measure, and print one line per quantity."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    told = measured(runs)
    print(f"preflight(), slower rank: median {told['took']:.2f} s, least {told['least']:.2f} s ({runs} jobs)")
    print(f"CPU of both ranks' processes in it: median {told['cpu']:.2f} s")
    print(
        f"job: {told['with']:.2f} s with, {told['without']:.2f} s without: ratio {told['with'] / told['without']:.2f}"
    )


if __name__ == "__main__":
    main()
