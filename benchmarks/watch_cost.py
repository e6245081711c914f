"""What `with ddp_doctor.watch():` costs a healthy job of two ranks: milliseconds, and the job's wall time with and without.

    python benchmarks/watch_cost.py [--pairs 21]

Jobs with and without take turns, so that what else the machine does hits both alike. The package is one with bytecode, as
an installation leaves it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from installed import installed

RANK = """
import contextlib, json, sys, time
import torch, torch.distributed as dist
began = time.perf_counter()
import ddp_doctor
block = ddp_doctor.watch() if int(sys.argv[3]) else contextlib.nullcontext()
block.__enter__()
entered = time.perf_counter()
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
dist.all_reduce(torch.ones(1))
left = time.perf_counter()
block.__exit__(None, None, None)
print(json.dumps([1000 * (entered - began), 1000 * (time.perf_counter() - left)]))
dist.destroy_process_group()
"""


def job(watched: bool, packages: str) -> tuple[float, list[list[float]]]:
    """Wall seconds of the job, and the milliseconds that entering and leaving the block took in each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = os.environ | {"PYTHONPATH": packages}
    began = time.monotonic()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(port), str(int(watched))], env=environ, stdout=subprocess.PIPE
        )
        for rank in range(2)
    ]
    told = [json.loads(rank.communicate()[0]) for rank in ranks]
    return time.monotonic() - began, told


def measured(pairs: int) -> dict[str, float]:
    """Medians over that many pairs of jobs, with and without, after one of each."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    enter, leave = [], []
    with tempfile.TemporaryDirectory() as folder:
        packages = installed(Path(folder))
        job(True, packages), job(False, packages)
        for pair in range(pairs):
            for watched in (True, False) if pair % 2 else (False, True):
                wall, told = job(watched, packages)
                seconds[watched].append(wall)
                if watched:
                    enter += [each[0] for each in told]
                    leave += [each[1] for each in told]
    both = [first + last for first, last in zip(enter, leave, strict=True)]
    ratios = [one / other for one, other in zip(seconds[True], seconds[False], strict=True)]
    return {
        "ms": statistics.median(both),
        "least": min(both),
        "most": max(both),
        "leaving": statistics.median(leave),
        "with": statistics.median(seconds[True]),
        "without": statistics.median(seconds[False]),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=21)
    told = measured(parser.parse_args().pairs)
    print(f"watch(): {told['ms']:.2f} ms (median; least {told['least']:.2f}, most {told['most']:.2f}), ", end="")
    print(f"of it on leaving {told['leaving']:.2f} ms; first import of ddp_doctor included")
    print(f"job: {told['with']:.3f} s with, {told['without']:.3f} s without, ratio of pairs {told['ratio']:.3f}")


if __name__ == "__main__":
    main()
