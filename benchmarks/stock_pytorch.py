"""Records what stock PyTorch itself says about each live fault: nobody attaches, the ranks are left to their timeout.

    python benchmarks/stock_pytorch.py [--only NAME,...] [--at-once 3] [--way plain]

The timeout of the process group is 12 s instead of 30 min, and the ranks are watched for 2.2 of it: as long as an hour and
more by default. Everything that ranks and launchers print is kept with its time. The result is `stock_said.toml` beside
this file, which `live_faults.py --stock` shows next to our own verdicts.

The rule: stock names the cause where any of these lines holds words that say it, whatever else is printed. `NAMES` lists
the words for each id, and is generous: a count of clients counts for a missing rank, an address for a wrong one. Where
words name a rank, it must be a right one.

`WAYS` are what people do to be told more: nothing (`plain`), TORCH_DISTRIBUTED_DEBUG=DETAIL with TORCH_CPP_LOG_LEVEL=INFO
(`detail`), a monitored_barrier after init and before each collective (`monitored-barrier`), and `py-spy dump` of every
process, at once (`py-spy`). A dump is judged by `SHOWS`: any line with the call that the cause is, of whatever rank.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).with_name("stock_said.toml")
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from faults import FAULTS, Fault, descendants, running  # noqa: E402
from jobs import PY_SPY  # noqa: E402

TIMEOUT = 12.0
WATCHED = 2.2
DEFAULT_TIMEOUT = 1800
LONGEST = 150
WAYS: dict[str, dict[str, str]] = {
    "plain": {},
    "detail": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"},
    "monitored-barrier": {"PYTHONPATH": str(Path(__file__).with_name("with_monitored_barrier"))},
    "py-spy": {},
}
BARRIER = r"Ranks? (?P<other>\d+)[\d, ]* failed to pass monitoredBarrier"
SHOWS: dict[str, str] = {
    "DDP115": r"spawn_main|_fixup_main",
    "DDP119": r"\b(get|input|recv|wait_for_\w+) \(",
    "DDP206": r"file_store|FileStore",
    "DDP505": r"flock|lockf|\bpipe\b|_try_get_data|\bread \(|\bstall \(",
    "DDP506": r"_ModuleLock|_find_and_load|take_lock|hold_and_wait|acquire|omp|\bstall \(",
    "DDP604": r"prepare\w* \(|work_for_ever|evaluate|sleep",
    "DDP607": r"_verify_param_shape",
}
"""What a line of a dump may be, for each id; of the others no line can say it, since it lies between ranks."""
NAMES: dict[str, str] = {
    "DDP101": BARRIER + r"|\d+/\d+ clients joined|keys: \S+//cpu//\d+/(?P<rank>\d+)\b|num_workers_joined",
    "DDP103": r"threads of one process|default process group twice",
    "DDP110": r"USE_AGENT_STORE",
    "DDP111": r"MASTER_PORT.*(differ|other)|MASTER_ADDR.*loopback",
    "DDP112": r"EADDRINUSE|[Aa]ddress already in use",
    "DDP115": r"bootstrapping phase|freeze_support|__main__",
    "DDP116": r"already checked in|same rank|duplicate rank",
    "DDP117": r"world.?size.*(mismatch|differ)|nranks \d+ vs \d+",
    "DDP118": r"TORCH_DISTRIBUTED_DEBUG|INIT_BARRIER",
    "DDP201": r"gai error|cannot be retrieved|[Nn]ame or service not known",
    "DDP202": r"remote=\[127\.|Unable to resolve hostname",
    "DDP204": r"not.*(this|local) host",
    "DDP205": r"rdzv.?id|run.?id",
    "DDP206": r"different.*file",
    "DDP209": r"Ping failed|invalid value returned from server|EADDRINUSE",
    "DDP301": r"no socket interface found|No usable listening interface|10\.66\.0\.1",
    "DDP302": r"firewall|dropped|No route to host",
    "DDP303": r"Network is unreachable|errno: 101|Cannot assign requested address|errno: 99",
    "DDP402": r"cuMemImport|cudaIpcOpen",
    "DDP407": r"Xid|GPU.*(lost|fault)",
    "DDP410": r"left.?over|earlier run",
    "DDP501": r"[Mm]ismatched NCCL version|Message truncated",
    "DDP505": r"lock|pipe",
    "DDP506": r"deadlock",
    "DDP601": r"Detected mismatch|failed to pass monitoredBarrier",
    "DDP602": r"uneven|Detected mismatch",
    "DDP603": r"Detected mismatch",
    "DDP604": BARRIER + r"|Rank (?P<rank>\d+) .*(failed|late|not reach)",
    "DDP605": r"new_group.*(order|all ranks)",
    "DDP606": r"Connection (was likely )?closed|worker crashing|exitcode",
    "DDP607": r"params|appears not to match|same model",
    "DDP608": r"SIGSTOP|stopped",
}
SPEAKS = re.compile(r"Error|error|[Tt]imed? ?out|fail|WARN|\[[WE]\d{3}|closed|refused")


def names(fault: Fault, line: str) -> bool:
    """Whether a line says the cause of this fault."""
    for found in (re.search(NAMES[each], line) for each in fault.expected if each in NAMES):
        if found is None:
            continue
        told = next(filter(None, found.groupdict().values()), None)
        if told is None or fault.ranks is None or int(told) in fault.ranks:
            return True
    return False


def dumped(fault: Fault) -> dict[str, Any]:
    """What `py-spy dump` shows of every process of a job: the line that names the cause, else the first frame."""
    lines: list[str] = []
    with running(fault) as started:
        begun = time.monotonic()
        for part, process in zip(fault.parts, started, strict=True):
            for pid in () if part.bystander else (process.pid, *descendants(process.pid)):
                # it waits for a stopped process
                dump = subprocess.run(
                    ["timeout", "10", PY_SPY, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False
                )
                lines += [line.strip() for line in dump.stdout.splitlines() if line.startswith("    ")]
        seconds = time.monotonic() - begun
    naming = [line for line in lines if any(re.search(SHOWS[each], line) for each in fault.expected if each in SHOWS)]
    shown = next(iter(naming or lines), "")
    return {"said": readable(shown), "after": round(seconds, 1), "named": bool(naming)}


def watch(fault: Fault, way: str = "plain") -> dict[str, Any]:
    """What was printed until the timeouts were over: the line that names the cause, else the first error."""
    if way == "py-spy":
        return dumped(fault)
    os.environ.update(WAYS[way], HANG_TIMEOUT=str(TIMEOUT))
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        with running(fault, Path(folder)) as started:
            begun = time.monotonic() - fault.settle
            while time.monotonic() - begun < WATCHED * TIMEOUT:
                now = time.monotonic() - begun
                for log in sorted(Path(folder).iterdir()):
                    for line in log.read_text(errors="replace").splitlines():
                        first.setdefault(line.strip(), now)
                if all(process.poll() is not None for process in started):
                    break
                time.sleep(0.5)
    loud = {line: at for line, at in first.items() if SPEAKS.search(line) and not line.startswith(("File ", "frame #"))}
    naming = [line for line in first if names(fault, line)]
    # of a traceback the last line says what happened
    shown = naming[0] if naming else next((line for line in loud if re.match(r"(\[rank\d+\]: )?[\w.]*Error", line)), "")
    shown = shown or next(iter(loud), "")
    return {"said": readable(shown), "after": round(first.get(shown, 0.0), 1), "named": bool(naming)}


def readable(line: str) -> str:
    """A line without what surrounds it in a log."""
    line = re.sub(r"^\[rank\d+\]:?\s*|\[[WE]\d{3,4} [^\]]*\]\s*", "", line).replace("|", "/")
    line = re.sub(r"/tmp/ddp-doctor-live-\w+", "/tmp/job", line)
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def one(name: str, way: str = "plain") -> dict[str, Any]:
    """One fault, watched in a process of its own: hosts are named after it."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, "--way", way],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr[-300:]}
    print(name, way, found, file=sys.stderr, flush=True)
    return found


def recorded() -> dict[str, dict[str, Any]]:
    """Fault -> what stock said, after how many seconds, and whether that names the cause."""
    found: dict[str, dict[str, Any]] = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else ():
        if line.startswith("["):
            entry = found[line[1:-1]] = {}
        elif " = " in line:
            name, _, value = line.partition(" = ")
            entry[name] = json.loads(value)
    return found


def by_default(entry: dict[str, Any]) -> float | None:
    """The seconds after which an entry would have been said with the timeout of 30 min; None if nothing was."""
    if not entry["said"]:
        return None
    return entry["after"] if entry["after"] < TIMEOUT / 2 else round(entry["after"] / TIMEOUT * DEFAULT_TIMEOUT)


def shown(entry: dict[str, Any]) -> str:
    """`text | after` of an entry; times beyond half the timeout as its multiples."""
    if not entry.get("said"):
        return f"nothing | {WATCHED:g} x timeout"
    # its own clock began before this one, which waits until all ranks are in their place
    own = re.search(r"after (\d+) seconds|after (\d+)ms|waiting (\d+)ms", entry["said"])
    told = max((int(own[1] or 0), int(own[2] or own[3] or 0) / 1000)) if own else 0.0
    after = max(entry["after"], told)
    when = f"{after:.0f} s" if after < TIMEOUT / 2 else f"{after / TIMEOUT:.1f} x timeout"
    return f"{entry['said']} | {when}"


def main() -> int:
    """Watch the faults, several at a time, and write the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--one", default="")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--way", choices=tuple(WAYS), default="plain", help="with --one; what is recorded is plain")
    options = parser.parse_args()
    by_name = {fault.name: fault for fault in FAULTS}
    if options.one:
        print(json.dumps(watch(by_name[options.one], options.way)))
        return 0
    chosen = [name for name in options.only.split(",") if name] or [
        name for name, fault in by_name.items() if not fault.why_not()
    ]
    with ThreadPoolExecutor(options.at_once) as pool:
        told = recorded() | dict(zip(chosen, pool.map(one, chosen), strict=True))
    lines = ["# What stock PyTorch says about each live fault; written by stock_pytorch.py.", ""]
    for name in by_name:
        if "said" in told.get(name, {}):
            values = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in told[name].items())
            lines += [f"[{name}]", *values, ""]
    RECORD.write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
