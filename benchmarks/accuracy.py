"""How often the doctor is right, in every mode, beside what people use today.

    python benchmarks/accuracy.py --modes attach,watch --json FILE [--part 1/2] [--faults NAME,...] [--cases open.jsonl]
    python benchmarks/accuracy.py --docs FILE...

Modes: `attach`, `watch`, `triage` (recorded logs), `run` and `preflight` (in place of the script, and in settings of their
own), `nccl` (the real libnccl on a described node, every version there is), `cases` (public reports); and what people use
today: `stock`, `detail`, `monitored-barrier`, `py-spy`. A mode that takes long can be run in parts. `--docs` puts the saved
results together, prints their figures and writes docs/accuracy.md and docs/accuracy.svg.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("", "checks", "tests", "tests/live", "benchmarks")]

import accuracy_page  # noqa: E402
import cases as public  # noqa: E402
import in_place  # noqa: E402
import preflight_faults  # noqa: E402
import stock_pytorch  # noqa: E402
from faults import CONTROLS, FAULTS, Fault  # noqa: E402
from live_faults import measured  # noqa: E402
from scoring import Row, confused, figures, row, surest  # noqa: E402

Work = tuple[str, Callable[[], Row]]
"""The name of a fault or healthy setting, and what starts and scores it."""
OPEN_CASES = ROOT.parent / "shared" / "cases" / "open.jsonl"


def live(mode: str) -> Iterator[Work]:
    """All live faults and controls, looked at by attach or watch."""
    for fault in (*FAULTS, *CONTROLS):
        yield fault.name, lambda fault=fault: measured(fault, mode)[0]  # type: ignore[misc]


def triage(_: argparse.Namespace) -> Iterator[Work]:
    """The logs that the faults left behind, and healthy ones."""
    from test_recorded_logs import cases, expected_of, triage as read

    ranks = {fault.name: fault.ranks for fault in FAULTS}

    def scored(folder: Path, expected: Sequence[str]) -> Row:
        started = time.monotonic()
        report = msgspec.to_builtins(read(folder))
        return row(
            "triage", folder.name, expected, ranks.get(folder.name), report, round(time.monotonic() - started, 3)
        )

    for folder in (*cases("live"), *cases("faulty")):
        yield folder.name, lambda folder=folder: scored(folder, expected_of(folder)[0])  # type: ignore[misc]
    for folder in cases("healthy"):
        yield folder.name, lambda folder=folder: scored(folder, ())  # type: ignore[misc]


def instead(mode: str) -> Iterator[Work]:
    """Faults and controls in whose ranks the doctor stands in place of the script."""

    def scored(fault: Fault) -> Row:
        reports, seconds = in_place.asked(fault, mode)
        rows = [
            in_place.without_ranks(row(mode, fault.name, fault.expected, fault.ranks, each, round(seconds, 2)))
            for each in reports
        ]
        return surest(rows) if rows else Row(mode=mode, name=fault.name, expected=fault.expected, failed="no report")

    for fault in in_place.faults(mode):
        yield fault.name, lambda fault=fault: scored(fault)  # type: ignore[misc]


def run(_: argparse.Namespace) -> Iterator[Work]:
    """`run` in place of scripts, in settings of a shell, and on described GPU nodes."""
    yield from instead("run")
    import gpu_nodes
    from fakes.nccl import why_not
    from fakes.node import node_names, read_node
    from run_settings import FAULTY, HEALTHY, Setting, called

    def in_setting(name: str, setting: Setting) -> Row:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            _, report = called(setting, Path(folder))
            return row("run", name, setting.expect, None, report, round(time.monotonic() - started, 2))

    for setting in (*FAULTY, *HEALTHY):
        name = f"{'fault' if setting.expect else 'healthy'}: {setting.title}"
        yield name, lambda setting=setting, name=name: in_setting(name, setting)  # type: ignore[misc]
    sites: list[gpu_nodes.Site] = []

    def on_node(name: str, place: str) -> Row:
        if not sites:
            sites.append(gpu_nodes.Site.make(Path(place, "site"), "12.8", "" if why_not("2.27.5") else "2.27.5"))
        node = read_node(name)
        with tempfile.TemporaryDirectory() as folder:
            ran = gpu_nodes.run(node, Path(folder), sites[0])
        return row("run", f"node: {name}", node.expect, None, ran.report, round(ran.seconds, 2))

    with tempfile.TemporaryDirectory(prefix="ddp-doctor-accuracy-") as place:
        for name in node_names():
            yield f"node: {name}", lambda name=name: on_node(name, place)  # type: ignore[misc]


def preflight(_: argparse.Namespace) -> Iterator[Work]:
    """`preflight()` in place of scripts, and in the meetings of benchmarks/preflight_faults.py."""
    yield from instead("preflight")

    def met(name: str, case: preflight_faults.Case) -> Row:
        told, _ = preflight_faults.run(name.split(":")[0], case, 20.0)
        right, ranks = preflight_faults.right(name.split(":")[0], case)
        reports = ((preflight_faults.report_of(each), each["seconds"]) for each in told)
        return surest([row("preflight", name, right, ranks, report, seconds) for report, seconds in reports])

    for size in (2, 8):
        for name, case in preflight_faults.cases(size, True, 20.0).items():
            full = f"{name}:{size} ranks"
            yield full, lambda full=full, case=case: met(full, case)  # type: ignore[misc]


def nccl(_: argparse.Namespace) -> Iterator[Work]:
    """The faults of the real libnccl, and healthy ranks, in each version that is unpacked."""
    from fakes.nccl import Stage, unpacked
    from nccl_faults import FAULTS as NCCL_FAULTS, Fault as NcclFault, causes, form_and_compare, named, numbers

    def scored(name: str, version: str, fault: NcclFault | None) -> Row:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(Path(folder))
            if fault:
                told = named(fault, version, stage)
            else:
                told = causes(form_and_compare(stage.host(), [stage.plan(rank, 4, version) for rank in range(4)]))
        first = told[0] if told else None
        return Row(
            mode="nccl",
            name=name,
            expected=(fault.id,) if fault else (),
            ranks=fault.ranks if fault else None,
            said=first[0] if first else None,
            confidence=first[1]["confidence"].value if first else None,
            told=tuple(first[1]["ranks"]) if first else (),
            errors=tuple(finding for finding, _ in told),
            certain_errors=tuple(finding for finding, about in told if about["confidence"].value == "certain"),
            seconds=round(time.monotonic() - started, 2),
        )

    for version in sorted(unpacked(), key=numbers):
        for fault in (*NCCL_FAULTS, None):
            if fault is None or fault.exists_in(version):
                name = f"{fault.name if fault else 'healthy'} ({version})"
                yield name, lambda name=name, version=version, fault=fault: scored(name, version, fault)  # type: ignore[misc]


def cases(options: argparse.Namespace) -> Iterator[Work]:
    """The public reports of which the text tells the cause."""
    if not options.cases.exists():
        print(f"no {options.cases}: --cases FILE", file=sys.stderr)
        return
    for name, said in public.scored(options.cases):
        yield name, lambda said=said: said()  # type: ignore[misc]


def baseline(way: str) -> Iterator[Work]:
    """What torch or py-spy says about the live faults."""
    mode = "stock" if way == "plain" else way

    def said(fault: Fault) -> Row:
        told = stock_pytorch.one(fault.name, way)
        if "failed" in told:
            return Row(mode=mode, name=fault.name, expected=fault.expected, failed=told["failed"])
        return Row(
            mode=mode,
            name=fault.name,
            expected=fault.expected,
            said=fault.expected[0] if told["named"] else None,
            line=told["said"],
            seconds=stock_pytorch.by_default(told) if way != "py-spy" else told["after"],
        )

    for fault in FAULTS:
        yield fault.name, lambda fault=fault: said(fault)  # type: ignore[misc]


MODES: dict[str, Callable[[argparse.Namespace], Iterator[Work]]] = {
    "attach": lambda options: live("attach"),
    "watch": lambda options: live("watch"),
    "triage": triage,
    "run": run,
    "preflight": preflight,
    "nccl": nccl,
    "cases": cases,
    "stock": lambda options: baseline("plain"),
    "detail": lambda options: baseline("detail"),
    "monitored-barrier": lambda options: baseline("monitored-barrier"),
    "py-spy": lambda options: baseline("py-spy"),
}
DOCTOR = ("attach", "watch", "run", "preflight", "triage", "nccl", "cases")
BARS = {
    "attach": {"exact": 0.97, "right rank": 0.97},
    "watch": {"exact": 0.97, "right rank": 0.97},
    "cases": {"top-1": 0.84},
}
MOST = {"attach": {"median s": 3.0}, "cases": {"wrong claims": 0.02}}


def started(mode: str, options: argparse.Namespace) -> Iterator[Row]:
    """The rows of a mode, each as soon as it is there; those that cannot be started here say so."""
    wanted = set(filter(None, options.faults.split(",")))
    part, parts = map(int, options.part.split("/"))
    hosts = {fault.name: fault for fault in (*FAULTS, *CONTROLS)}
    for place, (name, work) in enumerate(MODES[mode](options)):
        if (wanted and name not in wanted) or place % parts != part - 1:
            continue
        reason = hosts[name].why_not() if name in hosts and mode != "triage" else ""
        try:
            got = Row(mode=mode, name=name, expected=hosts[name].expected, failed=reason) if reason else work()
        except (TimeoutError, AssertionError, OSError) as error:
            got = Row(mode=mode, name=name, expected=("?",), failed=f"{type(error).__name__}: {error}"[:500])
        yield got


def line_of(each: Row) -> str:
    """One row as text."""
    verdict = (
        f"failed: {each.failed.strip()[-120:]}" if each.failed else each.said or f"none {','.join(each.candidates)}"
    )
    good = "-- " if each.failed else "ok " if each.ranks_right else "NO "
    seconds = "" if each.seconds is None else f"{each.seconds:8.2f} s"
    wrong = "  WRONG CERTAIN" if not each.failed and each.wrong_certain else ""
    known = f"{good} {each.mode:9} {each.name:44} {'|'.join(each.expected) or 'no error':16}"
    return f"{known} {verdict:26} {each.confidence or '':8} {list(each.told)!s:8} {seconds}{wrong}"


def table(rows: Sequence[Row]) -> str:
    """The figures of each mode, one a line, and the bars that are missed."""
    lines = []
    for mode in MODES:
        of_mode = [each for each in rows if each.mode == mode]
        if not of_mode:
            continue
        told = figures(of_mode)
        lines.append(f"{mode}: " + ", ".join(f"{name} {value}" for name, value in told.items() if value is not None))
        lines += [f"    {pair}  {times} x" for pair, times in confused(of_mode).items()] if mode in DOCTOR else []
    return "\n".join([*lines, *missed(rows)])


def missed(rows: Sequence[Row]) -> list[str]:
    """Each bar that these rows miss, in words."""
    found = []
    for mode in DOCTOR:
        told = figures(each for each in rows if each.mode == mode)
        for name, least in BARS.get(mode, {}).items():
            if told[name] is not None and told[name] < least:
                found.append(f"missed: {mode}: {name} {told[name]}, at least {least}")
        for name, most in MOST.get(mode, {}).items():
            if told[name] is not None and told[name] > most:
                found.append(f"missed: {mode}: {name} {told[name]}, at most {most}")
    ours = figures(each for each in rows if each.mode in DOCTOR)
    live_ones = figures(each for each in rows if each.mode == "attach")
    for what, value, bar in (
        ("wrong and certain", ours["wrong certain"], 0),
        ("errors in healthy settings", ours["healthy errors"], 0),
        ("warnings in healthy settings", ours["healthy warnings"], 1),
    ):
        if value > bar:
            found.append(f"missed: {what} {value}, at most {bar}")
    if live_ones["named certain"] is not None and live_ones["named certain"] < 0.5:
        found.append(f"missed: named certain {live_ones['named certain']}, at least 0.5")
    if ours["likely right"] is not None and ours["likely right"] < 0.85:
        found.append(f"missed: likely ones that are right {ours['likely right']}, at least 0.85")
    return found


def saved(paths: Sequence[Path]) -> tuple[list[Row], dict[str, Any]]:
    """The rows of several results, a later one in place of an earlier one, and what else they hold."""
    rows: dict[tuple[str, str], Row] = {}
    rest: dict[str, Any] = {}
    for path in paths:
        told = json.loads(path.read_text(encoding="utf-8"))
        rows |= {(each.mode, each.name): each for each in msgspec.convert(told.pop("rows", []), list[Row])}
        rest |= told
    return list(rows.values()), rest


def main() -> int:
    """Measure, or put results together; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default="", help=",".join(MODES))
    parser.add_argument("--faults", default="", help="only these")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the Kth of N parts")
    parser.add_argument("--cases", type=Path, default=OPEN_CASES)
    parser.add_argument("--json", type=Path, help="where the rows go")
    parser.add_argument("--docs", type=Path, nargs="+", help="results to write docs/accuracy.md from")
    options = parser.parse_args()
    if options.docs:
        rows, rest = saved(options.docs)
        accuracy_page.write(rows, rest, missed(rows))
    else:
        rows = []
        for mode in filter(None, options.modes.split(",")):
            for each in started(mode, options):
                print(line_of(each), flush=True)
                rows.append(each)
                if options.json:  # what there is survives an interruption
                    options.json.write_text(
                        json.dumps({"rows": msgspec.to_builtins(rows), "machine": machine()}, indent=0)
                    )
    print(table(rows))
    return 1 if missed(rows) else 0


def machine() -> str:
    """What these figures were measured on."""
    # torch is not imported: a process with torch that starts ranks is one of their job
    torch = importlib.metadata.version("torch")
    return f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, torch {torch}"


if __name__ == "__main__":
    sys.exit(main())
