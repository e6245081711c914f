"""Times `ddp-doctor triage` on many NCCL logs against GNU grep: `python benchmarks/triage_throughput.py [--mib 1024]`.

Writes the logs into a temporary folder (1,024 files, one WARN in the middle of file 700), then times both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = 1024
PLANTED = 700
WARN = (
    "node-{n}:{pid}:{pid} [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 "
    "bytes, error: No space left on device (28)\n"
)
LITERALS = [
    "NCCL WARN", "no socket interface", "Duplicate GPU", "unhandled system error", "Connection refused",
    "Connection closed by remote peer", "No space left on device", "invalid usage", "internal error",
    "exceeded error retry", "retrying (", "wrong magic", "Mismatched NCCL", "already checked in", "out of memory",
    "P2P is disabled", "Got completion", "ibv_modify_qp", "Traceback", "exitcode",
]  # fmt: skip


def lines_of_rank(number: int, size: int) -> str:
    """About `size` bytes of what a rank writes with NCCL_DEBUG=INFO."""
    head = f"node-{number}:{3000 + number}:{4000 + number} [{number % 8}] NCCL INFO "
    start = [
        "Bootstrap : Using eth0:10.0.0.5<0>",
        "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "NCCL version 2.27.5+cuda12.9",
        "Using network Socket",
        f"ncclCommInitRank comm 0x7f rank {number} nranks {FILES} cudaDev 0 nvmlDev 0 busId 1000 commId 0xb4 - Init START",
    ]
    body = []
    length = 0
    place = 0
    while length < size:
        channel = place % 64
        for text in (
            f"Channel {channel:02d}/0 : {number}[1] -> {(number + 1) % FILES}[2] [send] via NET/Socket/{channel % 4}",
            f"Channel {channel:02d}/0 : {(number - 1) % FILES}[0] -> {number}[1] [receive] via NET/Socket/{channel % 4}",
            f"Trees [{channel}] {number + 1}/-1/-1->{number}->{number - 1}",
            f"AllReduce: opCount {place:x} sendbuff 0x7f{place:08x} recvbuff 0x7f{place:08x} count 1048576 datatype 7 op 0",
            f"NET/Socket : Connected to peer {place}",
        ):
            body.append(head + text)
            length += len(head) + len(text) + 1
        place += 1
    return "\n".join([*(head + text for text in start), *body]) + "\n"


def write(folder: Path, mib: int) -> None:
    """The logs; the WARN stands in the middle of file 700."""
    size = (mib << 20) // FILES
    for number in range(FILES):
        text = lines_of_rank(number, size)
        if number == PLANTED:
            middle = text.index("\n", len(text) // 2) + 1
            text = text[:middle] + WARN.format(n=number, pid=3000 + number) + text[middle:]
        (folder / f"rank{number:04d}.log").write_text(text)


def timed(command: list[str], **variables: str) -> tuple[float, float, int, str]:
    """Wall seconds, seconds of processor time, peak KiB of the largest process, and what it printed."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - started, work, after.ru_maxrss, done.stdout


def measured(mib: int, rounds: int) -> dict[str, float | bool]:
    """Medians over that many alternating rounds, the doctor's peak in MiB, and whether the planted line was found."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), mib)
        files = sorted(str(path) for path in Path(folder).iterdir())
        pattern = "|".join(literal.replace("(", r"\(") for literal in LITERALS)
        timed(["grep", "-cE", "x", *files])  # so that both read from memory
        search = [sys.executable, "-m", "ddp_doctor", "triage", folder, "--format", "json", "--timeout", "600"]
        spent = []
        for _ in range(rounds):  # alternating, so that what else the machine does slows both
            grep, grep_work, _, _ = timed(["grep", "-cE", pattern, *files], LC_ALL="C")
            doctor, work, peak, printed = timed(search, PYTHONPATH=os.pathsep.join((str(ROOT), str(ROOT / "checks"))))
            spent.append((grep, doctor))
            print(
                f"grep {grep:.2f} s ({grep_work:.2f} s of work), triage {doctor:.2f} s ({work:.2f} s of work)",
                file=sys.stderr,
                flush=True,
            )
    grep, doctor = (statistics.median(column) for column in zip(*spent, strict=True))
    report = json.loads(printed)
    planted = [item["source"] for finding in report["findings"] for item in finding["evidence"]]
    found = any(f"rank{PLANTED:04d}.log" in source for source in planted)
    return {"grep": grep, "triage": doctor, "mib": peak / 1024, "found": found}


def main() -> int:
    """Print the figures; 1 if a bar is missed or the planted line was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    told = measured(options.mib, options.rounds)
    grep, doctor, peak = told["grep"], told["triage"], told["mib"]
    print(
        f"grep {grep:.2f} s, triage {doctor:.2f} s ({doctor / grep:.2f} x), peak {peak:.0f} MiB, found {told['found']}"
    )
    return 0 if told["found"] and doctor <= 4 * grep and doctor <= 10 * options.mib / 1024 and peak <= 300 else 1


if __name__ == "__main__":
    sys.exit(main())
