"""What the ranks of one host cost together, beside one rank alone: CPU seconds of all processes and their children.

    python benchmarks/once_per_host.py [--ranks 8] [--runs 3] [-- OPTIONS OF RUN]

The ranks are started as a launcher starts them, without torchrun, whose own imports would hide theirs.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BAR = 2.0


def cpu(ranks: int, options: list[str]) -> tuple[float, list[float]]:
    """CPU seconds of so many ranks of one job, all and each."""
    port = str(random.randrange(20000, 32000))
    processes = []
    for rank in range(ranks):
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": f"{ROOT}:{ROOT / 'checks'}"}
        environ = os.environ | {name: str(value) for name, value in told.items()} | place
        command = [sys.executable, "-m", "ddp_doctor", "run", *(["--wait", "30"] if ranks > 1 else []), *options]
        # a settings file of this tree is none of the job's
        processes.append(subprocess.Popen(command, env=environ, cwd="/", stdout=subprocess.DEVNULL))
    each = []
    for process in processes:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        each.append(used.ru_utime + used.ru_stime)
    return sum(each), sorted(each)


def main() -> int:
    """Measure both in turn; exit code 1 where the ranks cost more than the bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("options", nargs="*")
    given = parser.parse_args()
    ratios = []
    for _ in range(given.runs):
        one, _ = cpu(1, given.options)
        many, each = cpu(given.ranks, given.options)
        ratios.append(many / one)
        print(
            f"1 rank {one:5.2f} s CPU, {given.ranks} ranks {many:5.2f} s: {many / one:.2f} times; "
            f"a guest {statistics.median(each[:-1]):.3f} s, the host {each[-1]:.2f} s",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.2f} times, bar {BAR:g}")
    return int(statistics.median(ratios) > BAR)


if __name__ == "__main__":
    sys.exit(main())
