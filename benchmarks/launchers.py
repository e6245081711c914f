"""Whether reports survive torchrun: launches with a finding, each of which has to bring one whole report.

    python benchmarks/launchers.py [--runs 100]

Every second launch has --max-restarts=2, every third a c10d rendezvous. Rank 1 has another WORLD_SIZE (DDP117).
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INNER = 'if [ $RANK = 1 ]; then export WORLD_SIZE=3; fi; exec "$0" "$@"'


def launch(number: int, room: str) -> str:
    """Start one; what is wrong with its output, or an empty text."""
    options = ["--nproc-per-node=2", "--no-python"]
    if number % 3 == 2:
        options += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    else:
        options += [f"--master-port={random.randrange(20000, 32000)}"]
    if number % 2:
        options.append("--max-restarts=2")
    run = [sys.executable, "-m", "ddp_doctor", "run", "--select", "DDP1"]
    environ = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'checks'}", "TMPDIR": room}
    command = [sys.executable, "-m", "torch.distributed.run", *options, "sh", "-c", INNER, *run]
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "did not end in 120 s"
    begun, ended = done.stdout.count("ddp-doctor 0."), done.stdout.count(" checks, ")
    if (begun, ended) != (1, 1) or "DDP117" not in done.stdout or "error found: " not in done.stdout:
        return f"{begun} reports begun, {ended} ended:\n{done.stdout}\n{done.stderr[-2000:]}"
    return "" if done.returncode == 1 else f"exit code {done.returncode}"


def main() -> int:
    """Launch them one after another; exit code 1 where one was not whole."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    started, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as room:
        for number in range(runs):
            said = launch(number, room)
            if said:
                wrong += 1
                print(f"launch {number}: {said}", flush=True)
        left = [path for path in Path(room).rglob("*") if not path.is_dir()]
    print(
        f"{runs - wrong} of {runs} launches brought one whole report, in {time.monotonic() - started:.0f} s; left {left}"
    )
    return int(wrong > 0 or bool(left))


if __name__ == "__main__":
    sys.exit(main())
