"""The whole `run` on 8 described GPUs with the real libnccl, beside the least that anybody types to learn the same.

`python benchmarks/gpu_run.py [--rounds N] [--gpus N] [--nccl VERSION]`, as root, with gcc, an installed torch and the
libnccl of `scripts/fetch_nccl.py`. The two commands run alternately in the same namespaces, on the same libnccl, with the
same variables; the ratio is that of medians. It ends after three minutes at most, with the rounds that it has by then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("", "checks", "tests", "tests/live")]

import gpu_nodes  # noqa: E402
from fakes.nccl import healthy, libnccl, why_not  # noqa: E402

MOST = 1.3
SECONDS = 150.0
"""No round starts later than that."""
FEWEST_ROUNDS = 3


def once(command: list[str], node: gpu_nodes.Node, site: gpu_nodes.Site, shown: bool = False) -> float:
    """Seconds to the end of the command on the node."""
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-benchmark-") as place:
        folder = Path(place)
        run, environ, _ = gpu_nodes.prepared(node, folder, site)
        started = time.perf_counter()
        done = subprocess.run(
            command or [*run, "--format", "json"],
            env=environ,
            capture_output=True,
            preexec_fn=lambda: gpu_nodes.show(node, folder),
            text=True,
        )
        seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stdout + done.stderr
    if not command:
        probes = json.loads(done.stdout)["probes"]
        assert any(probe["name"] == "communicator" and probe["status"] == "ok" for probe in probes), done.stdout
        for probe in sorted(probes, key=lambda probe: -probe["ms"])[:8] if shown else []:
            print(f"    {probe['name']:<16} {probe['ms']:>6} ms  {probe['status']}")
    return seconds


def main() -> int:
    """Print both medians and their ratio; exit code 1 where it is above the bar."""
    parser = argparse.ArgumentParser(description="Measures run on described GPUs beside a bare communicator.")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--nccl", default="2.27.5")
    parser.add_argument("--probes", action="store_true", help="show how long each probe took")
    given = parser.parse_args()
    if reason := why_not(given.nccl):
        print(reason)
        return 2
    seconds = measured(given.rounds, given.gpus, given.nccl, shown=given.probes)
    run, peer = statistics.median(seconds["run"]), statistics.median(seconds["bare"])
    for name, each in seconds.items():
        print(f"{name:5} median {statistics.median(each):.2f} s ({min(each):.2f} to {max(each):.2f})")
    rounds = len(seconds["run"])
    print(f"ratio {run / peer:.2f} in {rounds} rounds, at most {MOST}: {'met' if run / peer <= MOST else 'not met'}")
    return 0 if run / peer <= MOST else 1


def measured(rounds: int, gpus: int, nccl: str, shown: bool = False) -> dict[str, list[float]]:
    """The seconds of `run` and of a bare communicator, in turn, without the first of each."""
    node = healthy(gpus)
    bare = [sys.executable, str(ROOT / "benchmarks" / "bare_communicator.py"), str(libnccl(nccl)), str(gpus)]
    seconds: dict[str, list[float]] = {"run": [], "bare": []}
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-benchmark-") as place:
        site = gpu_nodes.Site.make(Path(place) / "site", "12.8", nccl)
        started = time.monotonic()
        for number in range(rounds + 1):
            if number > FEWEST_ROUNDS and time.monotonic() - started > SECONDS:
                break
            for name, command in (("bare", bare), ("run", [])):
                taken = once(command, node, site, shown=shown)
                if number:  # the first of each fills caches
                    seconds[name].append(taken)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
