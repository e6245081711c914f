"""What attaching costs the job: `python benchmarks/attach_harmless.py [--attaches 100] [--shielded] [--json]`.

A two-rank loop, a loop beside 250 threads and one beside an uninterruptible thread write down their steps. Each attach to
one of them is followed by one to another job: what that costs is what any program costs that computes at the time, and
what the first costs beyond it is what being looked at costs. The loss of a window is its length less the time that as many
steps take in a calm window before it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from faults import Fault, Part, rank, running  # noqa: E402

MOST_LOST = 0.050
CALM = 0.7
LOOPS = ("ranks", "threads", "uninterruptible")


class Loop:
    """A process that writes down when each of its steps ended."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid = pid
        self._file = folder / str(pid)

    def steps(self, begin: float, end: float) -> list[float]:
        """The steps that ended between two moments."""
        data = self._file.read_bytes()
        return [at for (at,) in struct.iter_unpack("d", data[: len(data) // 8 * 8]) if begin <= at <= end]

    def cost(self, before: float, begin: float, end: float) -> tuple[float, float]:
        """What was lost in a window beside the calm one before it, and the longest step, both in seconds."""
        calm = self.steps(before, begin)
        usual = (calm[-1] - calm[0]) / (len(calm) - 1)
        inside = self.steps(begin, end)
        around = self.steps(before, time.monotonic())
        first = max([at for at in around if at < begin], default=begin)
        last = min([at for at in around if at > end], default=end)
        ends = [first, *inside, last]
        longest = max(late - early for early, late in itertools.pairwise(ends))
        return (last - first) - (len(inside) + 1) * usual, longest

    def states(self) -> tuple[str, ...]:
        """The states of its threads that matter: stopped, traced, dead, uninterruptible."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
        return tuple(sorted(state for state in found if state not in "RSI"))


def attach(pid: int) -> tuple[float, float]:
    """When attaching to a process began and ended."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir(), f"ddp-doctor-bytecode-{os.getppid()}"))
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "checks")])
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ddp_doctor", "attach", str(pid), "--format", "json"],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    end = time.monotonic()
    if done.returncode not in (0, 1, 4) or str(pid) not in done.stdout:
        raise SystemExit(f"exit code {done.returncode} of attaching to {pid}: {done.stdout[-500:]}{done.stderr}")
    return begin, end


def fault(how: str, folder: Path) -> Fault:
    """The loop of that name; the two ranks are one job."""
    variables = {"HOW": how, "STEPS": str(folder)}
    parts: tuple[Part, ...] = (rank(0, 1, "timed.py", **variables),)
    if how == "ranks":
        parts = (rank(0, 2, "timed.py", **variables), rank(1, 2, "timed.py", **variables))
    return Fault(how, (), None, parts, "", settle=1.0)


def shield(pid: int) -> None:
    """Let all threads of a process come before everything else on this machine; needs root."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(20))


def measured(how: str, attaches: int, bystander: int, shielded: bool) -> dict[str, Any]:
    """Losses of one loop over that many attaches, with as many to the bystander between them."""
    folder = Path(tempfile.mkdtemp(prefix="ddp-doctor-steps-"))
    looked, beside, longest, elsewhere = [], [], [], []
    with running(fault(how, folder)) as started:
        loops = [Loop(process.pid, folder) for process in started]
        states = [loop.states() for loop in loops]
        for loop in loops if shielded else ():
            shield(loop.pid)
        attach(loops[0].pid)
        for _ in range(attaches):
            for pid, losses, gaps in ((loops[0].pid, looked, longest), (bystander, beside, elsewhere)):
                before = time.monotonic()
                time.sleep(CALM)
                begin, end = attach(pid)
                time.sleep(0.05)
                costs = [loop.cost(before, begin, end) for loop in loops]
                losses.append(max(lost for lost, _ in costs))
                gaps.append(max(gap for _, gap in costs))
        dead = sum(process.poll() is not None for process in started)
        changed = [loop.states() for loop in loops] != states
    shutil.rmtree(folder)
    return {
        "loop": how,
        "attaches": attaches,
        "lost": round(statistics.median(looked), 4),
        "lost_beside": round(statistics.median(beside), 4),
        "more": round(statistics.median(here - there for here, there in zip(looked, beside, strict=True)), 4),
        "longest_step": round(statistics.median(longest), 4),
        "longest_step_beside": round(statistics.median(elsewhere), 4),
        "dead": dead,
        "changed_state": changed,
    }


def main() -> int:
    """Print the figures; exit code 1 where more than 50 ms are lost to being looked at, or somebody died or changed."""
    parser = argparse.ArgumentParser(description="Measures what attach costs a job.")
    parser.add_argument("--attaches", type=int, default=100, help="in all, over the three loops")
    parser.add_argument(
        "--shielded", action="store_true",
        help="give the loops real-time priority (root), so that only pauses and locks count and no other load does",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    given = parser.parse_args()
    each = -(-given.attaches // len(LOOPS))
    rows, met = [], True
    folder = Path(tempfile.mkdtemp(prefix="ddp-doctor-steps-"))
    with running(fault("threads", folder)) as (other,):
        for how in LOOPS:
            row = measured(how, each, other.pid, given.shielded)
            rows.append(row)
            good = row["more"] <= MOST_LOST and not row["dead"] and not row["changed_state"]
            met &= good
            if not given.json:
                print(
                    f"{row['loop']:16} {row['attaches']} attaches: lost {1000 * row['lost']:.0f} ms each "
                    f"({1000 * row['lost_beside']:.0f} ms while another job was looked at, {1000 * row['more']:.0f} ms more), "
                    f"longest step {1000 * row['longest_step']:.0f} ms ({1000 * row['longest_step_beside']:.0f} ms), "
                    f"{row['dead']} died, state {'changed' if row['changed_state'] else 'unchanged'}"
                    f"{'' if good else '  missed'}",
                    flush=True,
                )
    shutil.rmtree(folder)
    if given.json:
        print(json.dumps(rows))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
