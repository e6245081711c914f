"""Ranks that are missing, stopped or killed at random points of the exchange: do all others end in time and name them?

    python benchmarks/meeting_deadlines.py [--runs 20] [--ranks 6] [--wait 6]

Each run starts real ranks; up to half of them never come, are stopped or are killed at a random moment. Every other rank has
to end within --timeout + 2 s, and what is reported has to name a rank that did not take part until the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LATE = 20.0
"""For so long one that is late is waited for, so that it is known how late."""


def meeting(random_: random.Random, ranks: int, wait: float, timeout: float, room: Path) -> str:
    """One exchange; what was wrong with it, or an empty text."""
    port = str(random_.randrange(20000, 32000))
    victims = random_.sample(range(ranks), random_.randint(1, ranks // 2))
    fates = {rank: random_.choice(("missing", "stopped", "killed")) for rank in victims}
    running: dict[int, subprocess.Popen[bytes]] = {}
    started = time.monotonic()
    for rank in range(ranks):
        if fates.get(rank) == "missing":
            continue
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": f"{ROOT}:{ROOT / 'checks'}"}
        environ = os.environ | {name: str(value) for name, value in told.items()} | place
        command = [sys.executable, "-m", "ddp_doctor", "run", "--wait", f"{wait:g}", "--timeout", f"{timeout:g}"]
        out = (room / str(rank)).open("wb")
        words = [*command, "--format", "json", "--select", "DDP1,DDP608"]
        running[rank] = subprocess.Popen(words, env=environ, cwd="/", stdout=out, stderr=subprocess.DEVNULL)
        out.close()
    struck = set()
    for rank, fate in sorted(fates.items(), key=lambda each: random_.random()):
        time.sleep(random_.uniform(0, wait / len(fates)))
        if rank in running and running[rank].poll() is None:
            running[rank].send_signal(signal.SIGSTOP if fate == "stopped" else signal.SIGKILL)
            struck.add(rank)
        elif fate == "missing":
            struck.add(rank)
    wrong = []
    for rank, process in running.items():
        if rank in struck:
            continue
        try:
            process.wait(max(0.0, started + timeout + 2 + LATE - time.monotonic()))
        except subprocess.TimeoutExpired:
            wrong.append(f"rank {rank} still runs {time.monotonic() - started:.1f} s after the start")
            continue
        if time.monotonic() - started > timeout + 2:
            wrong.append(f"rank {rank} ended {time.monotonic() - started:.1f} s after the start")
    for process in running.values():
        if process.poll() is None:
            process.kill()
        process.wait()
    said = "".join((room / str(rank)).read_text() for rank in running if rank not in struck)
    named = set()
    for report in _reports(said):
        for finding in report["findings"]:
            named.update(finding["ranks"])
    unnamed = {rank for rank in struck if fates[rank] == "missing"} - named
    if unnamed and len(struck) < ranks:
        wrong.append(f"missing and not named: {sorted(unnamed)}; named {sorted(named)}")
    return "" if not wrong else f"{fates}, struck {sorted(struck)}: {'; '.join(wrong)}"


def _reports(text: str) -> list[dict]:  # type: ignore[type-arg]
    decoder, found, place = json.JSONDecoder(), [], 0
    while (start := text.find("{", place)) >= 0:
        report, place = decoder.raw_decode(text, start)
        found.append(report)
    return found


def main() -> int:
    """Run them; exit code 1 where one went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--wait", type=float, default=6.0)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    random_, wrong = random.Random(given.seed), 0
    for number in range(given.runs):
        with tempfile.TemporaryDirectory() as room:
            said = meeting(random_, given.ranks, given.wait, given.timeout, Path(room))
        if said:
            wrong += 1
            print(f"run {number}: {said}", flush=True)
    print(f"seed {given.seed}: {given.runs - wrong} of {given.runs} ended in time with the missing named")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
