"""A meeting of many simulated ranks: the real host, messages, sockets and judgement; the other ranks are thin clients.

    python benchmarks/meeting_scale.py [--ranks 1024,4096] [--missing N] [--settings 40] [--runs N]

Prints for each number of ranks the wall seconds from the first connection until the last rank has the verdict, the host's
peak memory, and the bytes of the messages each way.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "checks")]

from ddp_doctor.facts.attendance import Attendee  # noqa: E402
from ddp_doctor.meeting.attend import attend  # noqa: E402
from ddp_doctor.meeting.connection import Connection  # noqa: E402
from ddp_doctor.meeting.identity import Identity  # noqa: E402
from ddp_doctor.meeting.messages import MOST_HEARD, VERSION, Came, Verdict, framed  # noqa: E402
from ddp_doctor.meeting.venue import LocalVenue  # noqa: E402
from ddp_doctor.model import Report, Subject  # noqa: E402
from ddp_doctor.rank.examination import Examination  # noqa: E402

PER_HOST = 8
SETTINGS = 40
"""Variables that a rank describes itself with."""
CLIENTS = 2


def attendee(rank: int, size: int, settings: int) -> Attendee:
    """A rank as it would describe itself, with so many variables."""
    host = f"node-{rank // PER_HOST:04}"
    own = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank % PER_HOST), "MASTER_ADDR": "node-0000"}
    return Attendee(
        subject=Subject(host=host, pid=4000 + rank, start_time=1000, thread=4000 + rank, rank=rank),
        source=f"pid {4000 + rank} thread {4000 + rank}",
        rank=rank, world_size=size, local_world_size=PER_HOST, address="node-0000", port="29500",
        variables=own | {f"NCCL_SETTING_NUMBER_{each}": f"value-{each}" for each in range(settings)},
        torch="2.13.0+cu128", nccl="2.27.5", cuda_build="12.8", machine=f"boot of {host}",
        where="train.py:12 main", script="/home/somebody/project/train.py", cwd="/home/somebody/project",
    )  # fmt: skip


def clients(ranks: range, size: int, name: str, settings: int) -> None:
    """Be all these ranks; exit code 0 once each has the verdict."""
    venue, selector = LocalVenue(name), selectors.DefaultSelector()
    for rank in ranks:
        while (found := venue.connect((0,), 1.0)) is None:
            time.sleep(0.01)
        connection = Connection(found[0], MOST_HEARD)
        connection.send(Came(VERSION, name, attendee(rank, size, settings)))
        selector.register(connection, selectors.EVENT_READ, connection)
    left = len(ranks)
    while left:
        for entry, _ in selector.select(5.0):
            connection = entry.data
            connection.flush()
            for message in connection.receive():
                if isinstance(message, Verdict):
                    assert msgspec.msgpack.decode(message.judgement, type=Report).tool.command == "preflight"
                    selector.unregister(connection)
                    connection.close()
                    left -= 1
                    break
            if connection.closed and entry.fd in selector.get_map():
                raise SystemExit(f"closed without a verdict: {connection.closed}")
    os._exit(0)


def measure(size: int, missing: int = 0, settings: int = SETTINGS) -> dict[str, Any]:
    """One meeting, in a process of its own so that its memory is its own; `failed` holds the status where it failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as told:
            text = told.read()
        _, status = os.waitpid(child, 0)
        return json.loads(text) if status == 0 else {"ranks": size, "failed": status}
    name = f"scale-{os.getpid()}"
    present = range(1, size - missing)
    shares = [present[each::CLIENTS] for each in range(CLIENTS)]
    started = time.monotonic()
    pids = []
    for share in shares:
        pid = os.fork()
        if not pid:
            clients(share, size, name, settings)
        pids.append(pid)
    end = started + (8.0 if missing else 300.0)
    identity = Identity(here=name, everywhere=name, port=1, sure=True)
    me = attendee(0, size, settings)
    work = Examination(os.environ, started, end)
    got = attend(me, identity, work, lambda: None, started, end)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    seconds = time.monotonic() - started
    assert got.verdict is not None and codes == [0] * CLIENTS, (got, codes)
    report = msgspec.msgpack.decode(got.verdict.judgement, type=Report)
    memory = resource.getrusage(resource.RUSAGE_SELF)
    said = len(framed(Came(VERSION, name, me)))
    figures = {
        "ranks": size,
        "missing": missing,
        "seconds": round(seconds, 2),
        "mib": memory.ru_maxrss // 1024,
        "cpu": round(memory.ru_utime + memory.ru_stime, 1),
        "bytes_from": said,
        "bytes_to": len(got.verdict.judgement),
        "verdict": f"{report.verdict.finding or report.verdict.status}: {report.verdict.summary}",
    }
    os.write(writer, json.dumps(figures).encode())
    os._exit(0)


def more_files() -> None:
    """As many open files as the hard limit lets this process have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="1024")
    parser.add_argument("--missing", type=int, default=0)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--runs", type=int, default=1, help="so often each size, in turn")
    options = parser.parse_args()
    more_files()
    for size in options.runs * [int(each) for each in options.ranks.split(",")]:
        told = measure(size, options.missing, options.settings)
        if "failed" in told:
            print(f"{size} ranks: failed, status {told['failed']}")
            continue
        print(
            f"{size:>5} ranks, {told['missing']} missing: {told['seconds']:5.1f} s, host {told['mib']:4} MiB, "
            f"{told['cpu']:4.1f} s CPU, {told['bytes_from']} bytes from a rank, {told['bytes_to']} to it; {told['verdict']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
