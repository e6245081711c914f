"""Starts each live fault, attaches to it, and says whether the right cause and the right ranks were named.

    python benchmarks/live_faults.py [--only NAME,...] [--quick] [--show] [--stock] [--mode watch]

With `--mode watch` each job is started by `ddp-doctor watch`, and what that reports on its own is judged; of a healthy
control, and of the faults that docs/live_faults.md says it leaves alone, it has to report nothing.

Prints one line per fault (fault, expected, got, rank right, seconds), then per healthy control, then
`N/M named, K/L healthy kept clear, median T s`. A fault that is left alone counts as not named.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "live"), str(ROOT / "benchmarks")]

import stock_pytorch  # noqa: E402
from faults import CONTROLS, FAULTS, Fault, a_member, running  # noqa: E402
from scoring import Row, row  # noqa: E402


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A whole `ddp-doctor` command."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "checks")])}
    return subprocess.run(
        [sys.executable, "-m", "ddp_doctor", *arguments], capture_output=True, text=True, env=environ, check=False
    )


def attach(pid: int) -> tuple[dict[str, Any], int, float]:
    """The report of attaching, its exit code and the wall seconds of the whole command."""
    started = time.monotonic()
    done = command("attach", str(pid), "--format", "json")
    seconds = time.monotonic() - started
    if not done.stdout:
        return (
            {"verdict": {"status": "failed", "finding": None, "candidates": []}, "findings": [], "error": done.stderr},
            done.returncode,
            seconds,
        )
    return json.loads(done.stdout), done.returncode, seconds


def watched(fault: Fault) -> tuple[dict[str, Any], int, float]:
    """What `watch` reports of a fault that it started itself, and the seconds until then; of a control, nothing."""
    after = 3.0 + fault.settle + sum(part.delay for part in fault.parts)
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-watch-") as folder:
        path = Path(folder, "report.json")
        options = ("--after", str(after), "--format", "json", "-o", str(path))
        under = (
            "env",
            f"PYTHONPATH={ROOT}:{ROOT / 'checks'}",
            sys.executable,
            "-m",
            "ddp_doctor",
            "watch",
            *options,
            "--",
        )
        with running(fault, under=under):
            started = time.monotonic()
            silence = fault.watch_is_silent or not fault.expected
            # a slow job is reported after four times as long
            patience = 4 * after + 10 if silence else 5 * after + 30
            while not path.exists() and time.monotonic() - started < patience:
                time.sleep(0.1)
            seconds = time.monotonic() - started
            time.sleep(0.2)
            if path.exists():
                return json.loads(path.read_text()), 1, seconds
    return {"verdict": {"status": "silent", "finding": None, "candidates": []}, "findings": []}, 0, seconds


def measured(fault: Fault, mode: str) -> tuple[Row, dict[str, Any]]:
    """Start a fault, let a mode examine it, and score what it says; the row and the report."""
    try:
        if mode == "watch":
            report, _, seconds = watched(fault)
            # it speaks when its patience is over; what counts is how long it examines
            seconds = report["tool"]["seconds"] if "tool" in report else seconds
        else:
            with running(fault) as started:
                report, _, seconds = attach(a_member(fault, started))
    except (TimeoutError, AssertionError) as error:
        return Row(mode=mode, name=fault.name, expected=fault.expected, failed=str(error) or "not started"), {}
    # watch leaves a job alone that is past initialisation and works
    expected, ranks = ((), None) if mode == "watch" and fault.watch_is_silent else (fault.expected, fault.ranks)
    return row(mode, fault.name, expected, ranks, report, round(seconds, 2)), report


def main() -> int:
    """Run the set; exit code 0 if everything is as expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the text report of each that is not as expected")
    parser.add_argument(
        "--stock", action="store_true", help="show what stock PyTorch was recorded to say, and after how long"
    )
    parser.add_argument("--mode", choices=("attach", "watch"), default="attach")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    faults = [f for f in FAULTS if (not only or f.name in only) and (not options.quick or f.quick)]
    controls = [f for f in CONTROLS if (not only or f.name in only) and (not options.quick or f.quick)]
    stock = stock_pytorch.recorded() if options.stock else {}
    rows: list[Row] = []
    by_stock = 0
    for fault in (*faults, *controls):
        if fault.why_not():
            print(f"{fault.name:38} cannot be started here: {fault.why_not()}", flush=True)
            continue
        got, report = measured(fault, options.mode)
        if got.failed:
            print(f"{fault.name:38} could not be started: {got.failed}", flush=True)
            continue
        rows.append(got)
        good = got.exact and got.ranks_right
        said = got.said or f"{report['verdict']['status']} {','.join(got.candidates)}".strip()
        print(
            f"{fault.name:38} {'|'.join(got.expected) or 'no error':15} {said:24} {'ok ' if good else 'NO '} "
            f"ranks {list(got.told)!s:10} {got.seconds:5.2f} s{'  WRONG CERTAIN' if got.wrong_certain else ''}",
            flush=True,
        )
        if fault.name in stock:
            entry = stock[fault.name]
            by_stock += entry["named"]
            print(
                f"    stock {'names it' if entry['named'] else 'does not'} | {stock_pytorch.shown(entry)}", flush=True
            )
        if options.show and not good:
            print(json.dumps({key: report.get(key) for key in ("verdict", "ranks", "error")}, indent=1)[:6000])
            print(
                {
                    outcome["reason"]
                    for outcome in report.get("outcomes", ())
                    if outcome["status"] in ("unknown", "crashed")
                }
            )
            print([probe for probe in report.get("probes", ()) if probe["status"] != "ok"])
            for finding in report["findings"]:
                print("   ", finding["id"], finding["severity"], finding["confidence"], finding["summary"])
    named = sum(each.exact and each.ranks_right for each in rows if not each.healthy)
    clear = sum(each.exact for each in rows if each.healthy)
    median = statistics.median(each.seconds or 0.0 for each in rows) if rows else 0.0
    to_name = len(faults) - sum(options.mode == "watch" and fault.watch_is_silent for fault in faults)
    to_clear = len(faults) + len(controls) - to_name
    print(f"{named}/{to_name} named, {clear}/{to_clear} healthy kept clear, median {median:.2f} s", end="")
    if options.stock:
        print(f", stock named {by_stock}/{sum(fault.name in stock for fault in faults)}", end="")
    wrong = sum(each.wrong_certain for each in rows)
    print(f", {wrong} wrong and certain" if wrong else "")
    return 0 if named == to_name and clear == to_clear else 1


if __name__ == "__main__":
    sys.exit(main())
