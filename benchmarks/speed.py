"""What the doctor costs beside what people type today, everything in one table.

    python benchmarks/speed.py [--parts commands,attach,...] [--python PATH] [--quick] [--json]

Parts: `commands` (run beside importing torch, collect_env and two ranks under torchrun; the cost of importing; memory),
`attach` (2 to 64 hung ranks, beside one py-spy dump of each), `triage` (1 GiB of logs, beside grep), `preflight` and `watch`
(a job with and without), `meeting` (1,024 and 4,096 simulated ranks), `node` (eight described GPUs, beside a bare
communicator on the real libnccl). Whole commands, started in turn so that a change of the machine's mood meets all of
them, and judged by their medians as ratios. `--python` is the interpreter whose torch is examined and in which the peers of
`commands` run; the doctor runs in the interpreter that runs this file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("", "checks", "tests", "tests/live", "benchmarks")]
TWO_RANKS = Path(__file__).with_name("two_ranks.py")


class Cost(NamedTuple):
    """One run of one command: seconds, and the MiB of its largest process."""

    wall: float
    cpu: float
    memory: float = 0.0


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
    Bar("memory of run beside importing torch", "run", "import torch", 1.3, "memory"),
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
    started = time.perf_counter()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environ) as ran,
    ):
        assert ran.stdout is not None
        printed = ran.stdout.read()
        _, status, spent = os.wait4(ran.pid, 0)
        ran.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - started
        if ran.returncode:
            errors.seek(0)
            said = (printed + errors.read()).decode(errors="replace")
            raise SystemExit(f"exit code {ran.returncode} of {' '.join(command)}\n{said}")
    return Cost(wall, spent.ru_utime + spent.ru_stime, spent.ru_maxrss / 1024)


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


def row(bar: Bar, costs: dict[str, list[Cost]]) -> dict[str, Any]:
    """One line of the table: what the subject costs, what the peer does, and what the bar compares."""
    of_subject = [getattr(cost, bar.measure) for cost in costs[bar.subject]]
    of_peer = [getattr(cost, bar.measure) for cost in costs[bar.peer]] if bar.peer else []
    value = statistics.median(of_subject)
    if of_peer:
        peer = statistics.median(of_peer)
        value = value - peer if bar.difference else value / peer
    kind = {"cpu": ", CPU", "memory": ", MiB"}.get(bar.measure, "")
    ratio = bool(of_peer) and not bar.difference
    return line(f"{bar.what}{kind}", value, "x" if ratio else "s", bar.most, of_subject, of_peer)


def line(
    what: str, value: float, unit: str, most: float | None, subject: Sequence[float] = (), peer: Sequence[float] = ()
) -> dict[str, Any]:
    """A line of the table; without a bar it is merely told."""
    return {
        "what": what,
        "subject": spread(subject),
        "peer": spread(peer),
        "unit": unit,
        "value": round(value, 3),
        "bar": most,
        "met": most is None or value <= most,
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median, least and most."""
    if not values:
        return None
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The lines as text: what it costs and what the peer does as median (least to most), then what is compared."""
    shown = [f"{'':48}{'it':>24}{'peer':>24}{'value':>12}{'bar':>8}"]
    for each in rows:
        costs = [
            f"{of['median']:.2f} ({of['min']:.2f} to {of['max']:.2f})" if of else ""
            for of in (each["subject"], each["peer"])
        ]
        bar = "" if each["bar"] is None else f"{each['bar']:g}"
        value = f"{each['value']:g} {each['unit']}"
        shown.append(
            f"{each['what']:48}{costs[0]:>24}{costs[1]:>24}{value:>12}{bar:>8}{'' if each['met'] else '  missed'}"
        )
    return "\n".join(shown)


def commands_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Whole commands beside what people type."""
    costs = measured(given.python, 3 if given.quick else 11)
    return [row(bar, costs) for bar in BARS]


def attach_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Hung ranks beside one py-spy dump of each, and the growth from few to many."""
    import attach_speed

    told = [attach_speed.measured(number, 2 if given.quick else 5) for number in (2, 8, 64)]
    rows = []
    for each in told:
        what, most = f"attach to {each['ranks']} hung ranks", each["wall_bar"] or None
        rows.append(line(what, each["wall"], "s", most, [each["wall_least"], each["wall"], each["wall_most"]]))
        rows.append(
            line(
                f"{what}, CPU, py-spy dump of each",
                each["cpu"],
                "s",
                each["cpu_bar"],
                [each["cpu"]],
                [each["cpu_of_dumps"]],
            )
        )
    few, many = told[0], told[-1]
    growth = (many["wall"] / few["wall"]) / (many["ranks"] / few["ranks"])
    return [*rows, line("growth of attach from 2 to 64 ranks, linear is 1", growth, "x", 1.0)]


def triage_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """NCCL's logs beside grep."""
    import triage_throughput

    mib = 128 if given.quick else 1024
    told = triage_throughput.measured(mib, 3)
    if not told["found"]:
        raise SystemExit("triage did not find the planted line")
    return [
        line(f"triage of {mib} MiB", told["triage"], "s", 10 * mib / 1024, [told["triage"]]),
        line(
            f"triage of {mib} MiB beside grep",
            told["triage"] / told["grep"],
            "x",
            4.0,
            [told["triage"]],
            [told["grep"]],
        ),
        line("memory of triage", told["mib"], "MiB", 300, [told["mib"]]),
    ]


def preflight_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A healthy job with and without preflight()."""
    import preflight_cost

    told = preflight_cost.measured(3 if given.quick else 10)
    return [
        line("preflight() in the slower of two ranks", told["took"], "s", 0.5, [told["took"]]),
        line(
            "job with preflight() beside without",
            told["with"] / told["without"],
            "x",
            None,
            [told["with"]],
            [told["without"]],
        ),
    ]


def watch_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A healthy job with and without watch()."""
    import watch_cost

    told = watch_cost.measured(3 if given.quick else 10)
    return [
        line("watch() in a rank", told["ms"], "ms", 5.0, [told["ms"]]),
        line("job with watch() beside without", told["ratio"], "x", None, [told["with"]], [told["without"]]),
    ]


def meeting_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Simulated ranks that meet, and the growth from many to more."""
    import meeting_scale

    meeting_scale.more_files()
    few, many = (meeting_scale.measure(size) for size in (1024, 4096))
    if "failed" in few or "failed" in many:
        raise SystemExit(f"a meeting failed: {few} {many}")
    rows = [
        line("1,024 ranks meet", few["seconds"], "s", 10.0, [few["seconds"]]),
        line(
            "4,096 ranks beside 1,024", many["seconds"] / few["seconds"], "x", 4.5, [many["seconds"]], [few["seconds"]]
        ),
    ]
    return [
        *rows,
        *(
            line(f"memory of the host of {each['ranks']}", each["mib"], "MiB", 1024, [each["mib"]])
            for each in (few, many)
        ),
    ]


def node_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A described node with the real libnccl beside a bare communicator."""
    import gpu_run
    from fakes.nccl import why_not

    if reason := why_not("2.27.5"):
        print(f"node: not measured: {reason}", file=sys.stderr)
        return []
    told = gpu_run.measured(3 if given.quick else 11, 8, "2.27.5")
    ratio = statistics.median(told["run"]) / statistics.median(told["bare"])
    return [line("run on 8 GPUs beside a bare communicator", ratio, "x", gpu_run.MOST, told["run"], told["bare"])]


PARTS = {
    "commands": commands_part,
    "attach": attach_part,
    "triage": triage_part,
    "preflight": preflight_part,
    "watch": watch_part,
    "meeting": meeting_part,
    "node": node_part,
}


def main() -> int:
    """Print the table; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose torch is examined")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller logs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    version = subprocess.check_output([given.python, "-c", "import torch; print(torch.__version__)"], text=True).strip()
    rows: list[dict[str, Any]] = []
    for name in given.parts.split(","):
        rows += PARTS[name](given)
        if not given.json:
            print(f"{name}: done", file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({"torch": version, "quick": given.quick, "rows": rows}, indent=1))
    else:
        print(f"torch {version}, medians of alternating runs (least to most)\n{table(rows)}")
    return 0 if all(each["met"] for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
