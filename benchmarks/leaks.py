"""Calls the doctor many times and counts what is left behind: processes, open files, ports, shared memory, files, mounts.

    python benchmarks/leaks.py [--count 1000] [--only run,attach,triage,lint,library]

The calls run in namespaces of their own (PIDs, network, IPC, mounts, with an empty /tmp, /dev/shm and home), so whatever is
there afterwards is the doctor's. Four of five are commands, on this node, on a job that really hangs, on its log and on its
script, and every third of them is ended early with a signal. One in five examines in this very process, which is where
descriptors and threads would add up. Needs root, and about a second for each call.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HANG = ROOT / "tests" / "live" / "hangs" / "threads_as_ranks.py"
LOG = (
    "DistStoreError: wait timeout after 12000ms, keys: /default_pg/1//cpu//0/0\n"
    "DistStoreError: wait timeout after 12000ms, keys: /default_pg/0//cpu//0/1\n"
)
HOME = "/tmp/home"
EXPECTED = {"run": {0}, "attach": {1}, "triage": {1}, "lint": {1}}
ENDED_EARLY = {130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT}


def isolated(arguments: list[str]) -> int:
    """This script again, in namespaces of its own; its exit code."""
    if os.geteuid() != 0:
        sys.exit("needs root for the namespaces in which what is left behind can be counted")
    if str(ROOT).startswith("/tmp/") or sys.executable.startswith("/tmp/"):
        sys.exit("/tmp is replaced by an empty folder, so neither the code nor the interpreter may be in it")
    empty = "mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && mkdir /tmp/home"
    prepare = f'ip link set lo up && {empty} && "$@"; exit $?'
    # the shell stays: as PID 1 it reaps the workers of doctors that were killed
    unshare = ["unshare", "--fork", "--pid", "--kill-child", "--mount-proc", "--net", "--ipc", "--mount"]
    command = [*unshare, "sh", "-c", prepare, "sh", sys.executable, __file__, "--inside", *arguments]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("DDP_DOCTOR_", "SLURM", "MASTER"))
    }
    environ |= {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "checks"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    return subprocess.run(command, env=environ | {"HOME": HOME, "TMPDIR": "/tmp"}, check=False).returncode


def there() -> dict[str, set[str]]:
    """Everything that a call could leave behind, by kind."""
    pids = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    found: dict[str, set[str]] = {
        "processes": set(),
        "namespaces": set(),
        "ports": set(),
        "shared memory": set(os.listdir("/dev/shm")),
        "files": {str(path) for path in Path("/tmp").rglob("*")},
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "descriptors": {f"{fd} {_link(f'/proc/self/fd/{fd}')}" for fd in os.listdir("/proc/self/fd")},
        "threads": {str(thread) for thread in threading.enumerate()},
    }
    for pid in pids:
        try:
            status = Path("/proc", pid, "stat").read_text()
            command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found["processes"].add(f"{pid} {status.rsplit(')', 1)[1].split()[0]} {command or status}"[:200])
        found["namespaces"] |= {
            f"{kind} {_link(f'/proc/{pid}/ns/{kind}')}" for kind in ("net", "mnt", "ipc", "pid", "uts")
        }
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, state = line.split()[:4]
            if state != "06":  # the kernel keeps a closed connection for a minute
                found["ports"].add(f"{table} {local} {remote} {state}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if len(words) > 7:
            found["ports"].add(f"unix {words[7]}")
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        found["shared memory"].add(f"System V {line.split()[1]}")
    found["descriptors"] = {each for each in found["descriptors"] if "/proc/" not in each}
    found["namespaces"] = {each for each in found["namespaces"] if each.endswith("]")}
    return found


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def in_this_process() -> None:
    """One examination by the library, with workers, in the process that counts."""
    from ddp_doctor.examine import examine
    from ddp_doctor.host import Host
    from ddp_doctor.packs import load_packs
    from ddp_doctor.probes import probes_for_run

    cheap = {"limits", "process_tree", "interfaces", "names", "port", "shm", "variables", "extension_locks"}
    probes = tuple(probe for probe in probes_for_run() if probe.name in cheap)
    examine("run", load_packs(third_party=False), host=Host(20.0), probes=probes)


def call(command: list[str], end: signal.Signals | None, after: float) -> tuple[int, str]:
    """Run a command of the doctor, ended early where `end` says how; its exit code and what it wrote to stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ddp_doctor", *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if end is not None:
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(end)
    _, said = process.communicate(timeout=90)
    return process.returncode, said


def inside(count: int, only: set[str]) -> int:
    """Make the calls; the number of things left behind."""
    log, script = Path("/tmp/rank0.log"), Path("/tmp/train.py")
    log.write_text(LOG)
    script.write_text(HANG.read_text())
    port = {"MASTER_PORT": "29517"}
    job = subprocess.Popen(
        [sys.executable, str(HANG), "1000000"],
        env=os.environ | port,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    while "python" in Path(f"/proc/{job.pid}/comm").read_text() and len(os.listdir(f"/proc/{job.pid}/task")) < 3:
        time.sleep(0.1)
    commands = {
        "run": ["run", "--timeout", "60"],
        "attach": ["attach", str(job.pid)],
        "triage": ["triage", str(log)],
        "lint": ["lint", str(script)],
    }
    chosen = [name for name in (*commands, "library") if name in only]
    if "library" in chosen:
        in_this_process()  # imports and caches are no leak
    time.sleep(1)
    before = there()
    chance, seconds, unexpected = random.Random(8), {name: [] for name in chosen}, Counter()
    ends = itertools.cycle([None, None, signal.SIGTERM, None, None, signal.SIGKILL, None, None, signal.SIGINT])
    for number, name in enumerate(itertools.islice(itertools.cycle(chosen), count), 1):
        started = time.monotonic()
        if name == "library":
            in_this_process()
        else:
            end = next(ends)
            usual = statistics.median(seconds[name]) if seconds[name] else 1.0
            code, said = call(commands[name], end, chance.uniform(0.05, usual))
            if code not in EXPECTED[name] and not (end and code in ENDED_EARLY):
                unexpected[f"{name} exit {code}" + (f" after {end.name}" if end else "")] += 1
                print(said, file=sys.stderr)
            if end is not None:
                continue
        seconds[name].append(time.monotonic() - started)
        if number % 50 == 0:
            print(
                f"{number} calls, {sum(map(len, left(before, there()).values()))} more things than before",
                file=sys.stderr,
            )
    behind = left(before, there())
    deadline = time.monotonic() + 5
    while behind and time.monotonic() < deadline:  # a killed doctor's workers are killed by the kernel, and then reaped
        time.sleep(0.2)
        behind = left(before, there())
    job.kill()
    job.wait()
    for name in chosen:
        print(f"{name:8} {len(seconds[name]):5} whole calls, median {statistics.median(seconds[name] or [0]):.2f} s")
    for what, times in unexpected.items():
        print(f"unexpected: {what}, {times} times")
    for kind, things in behind.items():
        print(f"left behind: {kind}", *sorted(things)[:10], sep="\n  ")
    total = sum(map(len, behind.values()))
    print(f"{count} calls: {total} left behind")
    return total + unexpected.total()


def left(before: dict[str, set[str]], now: dict[str, set[str]]) -> dict[str, set[str]]:
    """What there is now and was not before."""
    return {kind: things - before[kind] for kind, things in now.items() if things - before[kind]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", default="run,attach,triage,lint,library")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        return isolated(sys.argv[1:])
    return min(inside(given.count, set(given.only.split(","))), 1)


if __name__ == "__main__":
    sys.exit(main())
