"""A merged `run` of many simulated hosts: the real host of the job, its probes, paths and judgement; the leaders of the other
hosts are thin clients, each with eight ranks and the facts that the probes brought on this machine.

    python benchmarks/many_hosts.py [--hosts 128,512] [--profile]

Prints for each number the wall seconds until every host has the verdict, the memory and CPU of rank 0's process, and the
bytes that it took in and gave out for each rank.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import random
import resource
import selectors
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "checks"), str(ROOT / "benchmarks")]

from meeting_scale import CLIENTS, PER_HOST, SETTINGS, attendee, more_files  # noqa: E402

from ddp_doctor.cli.merged import Examination  # noqa: E402
from ddp_doctor.cli.output import Output  # noqa: E402
from ddp_doctor.cli.signals import Ending  # noqa: E402
from ddp_doctor.cli.wish import Wish  # noqa: E402
from ddp_doctor.facts.attendance import Attendance, Attendee  # noqa: E402
from ddp_doctor.meeting import neighbours  # noqa: E402
from ddp_doctor.meeting.attend import attend  # noqa: E402
from ddp_doctor.meeting.calls import Target  # noqa: E402
from ddp_doctor.meeting.connection import Connection  # noqa: E402
from ddp_doctor.meeting.doors import Door, Place  # noqa: E402
from ddp_doctor.meeting.identity import Identity  # noqa: E402
from ddp_doctor.meeting.messages import (  # noqa: E402
    MOST_HEARD,
    VERSION,
    Alive,
    Came,
    Listens,
    Saw,
    Spoken,
    Tried,
    Tries,
    Verdict,
    framed,
)
from ddp_doctor.meeting.terms import Terms  # noqa: E402
from ddp_doctor.meeting.venue import PortVenue  # noqa: E402
from ddp_doctor.model import Report  # noqa: E402

LIFE_SECONDS = 0.5
TIMEOUT = 600.0
Tables = list[dict[str, Any]]


def of_host(number: int, size: int) -> list[Attendee]:
    """The ranks of one host."""
    return [attendee(rank, size, SETTINGS) for rank in range(PER_HOST * number, PER_HOST * (number + 1))]


class Leader:
    """What stands for a host in the meeting of all."""

    def __init__(self, number: int, size: int, name: str, port: int, tables: bytes) -> None:
        self._ranks = of_host(number, size)
        self._first = self._ranks[0]
        self.spoken = self.heard = False
        sock = socket.create_connection(("127.0.0.1", port), 30.0)
        self.connection = Connection(sock, MOST_HEARD)
        for each in self._ranks:
            self.connection.send(Came(VERSION, name, each))
        host, machine = self._first.subject.host, self._first.machine
        self.connection.send(Alive(machine))
        self.connection.send(Saw(host, tables_of(tables, host)))
        door = Door(address="127.0.0.1", port=9, uses=("nccl", "gloo"), nonce=host)
        self.connection.send(Listens(machine, host, self._first.rank or 0, (door,)))

    def live(self) -> None:
        """Say so."""
        self.connection.send(Alive(self._first.machine))

    def hear(self) -> None:
        """Answer what has come."""
        self.connection.flush()
        for message in self.connection.receive():
            if isinstance(message, Tries):
                tried = reached(message.targets, {}, self._first.subject.host)
                self.connection.send(Tried(message.turn, self._first.machine, tried, []))
            elif isinstance(message, Verdict):
                assert msgspec.msgpack.decode(message.judgement, type=Report).tool.command == "run"
                self.heard = True
            elif isinstance(message, Spoken):
                self.spoken = True
        if self.connection.closed and self.heard:
            self.spoken = True
        if self.connection.closed and not self.spoken:
            raise SystemExit(f"{self._first.subject.host} lost the meeting: {self.connection.closed}")


def reached(targets: Sequence[Target], known: Mapping[str, str], host: str) -> Tables:
    """What a healthy host says of these: all on one machine, nobody could really call them."""
    return [
        {
            "kind": "PathTry", "subject": {"host": host}, "source": f"connect from {host}", "to": each.host,
            "address": each.door.address, "port": each.door.port, "uses": list(each.door.uses), "outcome": "reached",
            "error": "", "errno": None, "seconds": 0.0, "local": "127.0.0.1", "seen_as": "127.0.0.1", "own": False,
            "answered_by": "",
        }
        for each in targets
    ]  # fmt: skip


def tables_of(seen: bytes, host: str) -> Tables:
    """What the probes brought here, as if it were another host."""
    tables: Tables = msgspec.msgpack.decode(seen)
    for table in tables:
        if "host" in table.get("subject", {}):
            table["subject"]["host"] = host
    return tables


def leaders(numbers: Sequence[int], size: int, name: str, port: int, tables: bytes) -> None:
    """Be all these hosts; exit code 0 once each has the verdict."""
    selector = selectors.DefaultSelector()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            break
        except OSError:
            time.sleep(0.02)
    here = []
    for number in numbers:
        here.append(Leader(number, size, name, port, tables))
        selector.register(here[-1].connection, selectors.EVENT_READ, here[-1])
    lived = time.monotonic()
    while any(not each.spoken for each in here):
        for entry, _ in selector.select(0.1):
            entry.data.hear()
            if entry.data.spoken:
                selector.unregister(entry.data.connection)
                entry.data.connection.close()
        if time.monotonic() - lived >= LIFE_SECONDS:
            lived = time.monotonic()
            for each in here:
                if not each.spoken:
                    each.live()
    os._exit(0)


class Seen(Examination):
    """The work of `run`, with the probes' facts at hand."""

    tables: Tables
    profiler: cProfile.Profile | None = None
    judged_s = 0.0

    def observe(self, leader: Attendee) -> Tables:
        """As if they had been taken now."""
        return self.tables

    def judge(self, party: Sequence[Attendee], attendance: Attendance, seen: Sequence[Tables]) -> bytes:
        """The real judgement, and how long it took."""
        began = time.monotonic()
        if self.profiler is not None:
            self.profiler.enable()
        judged = super().judge(party, attendance, seen)
        if self.profiler is not None:
            self.profiler.disable()
        self.judged_s = time.monotonic() - began
        return judged


def meet(hosts: int, tables: bytes, profile: bool) -> str:
    """One meeting of so many hosts, with rank 0 here; a line on what it took."""
    size, name, port = hosts * PER_HOST, f"hosts-{os.getpid()}", random.randrange(20000, 32000)
    others = range(1, hosts)
    pids = []
    for share in [others[each::CLIENTS] for each in range(CLIENTS)]:
        pid = os.fork()
        if not pid:
            leaders(share, size, name, port, tables)
        pids.append(pid)
    started = time.monotonic()
    ranks = of_host(0, size)
    out = Output(
        format="json", path=None, colour="never", verbose=0, quiet=True, fail_on="error", strict=False,
        needs_verdict=False, started=started,
    )  # fmt: skip
    wish = Wish(selection=None, timeout=TIMEOUT, probe_timeout=5.0)
    work = Seen(out, wish, Ending(), expects=True)
    work.tables = tables_of(tables, ranks[0].subject.host)
    terms = Terms(
        thorough=True, observed_s=TIMEOUT / 2, observe_after_s=0.5, speak=lambda verdict: None,
        survey=lambda leader: (Place(address="127.0.0.1", uses=("nccl", "gloo")),),
    )  # fmt: skip
    me = ranks[0]
    local = os.fork()
    if not local:
        same_host(ranks[1:], name)
    work.profiler = cProfile.Profile() if profile else None
    identity = Identity(here=name, everywhere=name, port=port, sure=True)
    got = attend(me, identity, work, lambda: PortVenue(["127.0.0.1"], port), started, started + TIMEOUT / 2, terms)
    codes = [os.waitpid(pid, 0)[1] for pid in (*pids, local)]
    seconds = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    if work.profiler is not None:
        pstats.Stats(work.profiler).sort_stats("cumulative").print_stats(25)
    assert got.verdict is not None and not any(codes), (got.reason, codes)
    report = msgspec.msgpack.decode(got.verdict.judgement, type=Report)
    host = ranks[0].subject.host
    said = sum(len(framed(Came(VERSION, name, each))) for each in ranks) + len(framed(Saw(host, work.tables)))
    return (
        f"{size:>5} ranks on {hosts} hosts: {seconds:5.1f} s, {work.judged_s:.1f} of them judging, "
        f"rank 0 {used.ru_maxrss // 1024:4} MiB, "
        f"{used.ru_utime + used.ru_stime:4.1f} s CPU, {said // PER_HOST} bytes from a rank, "
        f"{len(got.verdict.judgement) // PER_HOST} to it; {report.target.merged}; "
        f"{report.verdict.finding or report.verdict.status}: {report.verdict.summary}"
    )


def same_host(ranks: Sequence[Attendee], name: str) -> None:
    """Be the other ranks of rank 0's host."""
    from ddp_doctor.meeting.venue import LocalVenue

    venue, connections = LocalVenue(name), []
    for each in ranks:
        while (found := venue.connect((0,), 1.0)) is None:
            time.sleep(0.01)
        connections.append(Connection(found[0], MOST_HEARD))
        connections[-1].send(Came(VERSION, name, each))
    while connections:
        time.sleep(0.05)
        for connection in connections[:]:
            if any(isinstance(message, Spoken) for message in connection.receive()):
                connections.remove(connection)
                connection.close()
            elif connection.closed:
                os._exit(1)
    os._exit(0)


def look(path: Path) -> None:
    """Take the probes of `run` on this machine, in a process whose memory is not measured."""
    out = Output(
        format="json", path=None, colour="never", verbose=0, quiet=True, fail_on="error", strict=False,
        needs_verdict=False, started=time.monotonic(),
    )  # fmt: skip
    work = Examination(out, Wish(selection=None, timeout=60.0, probe_timeout=5.0), Ending(), expects=True)
    path.write_bytes(msgspec.msgpack.encode(work.observe(attendee(0, PER_HOST, SETTINGS))))


def main() -> None:
    """Measure each number of hosts, each in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", default="128,512")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    more_files()
    neighbours.call = reached
    facts = Path(f"/tmp/many-hosts-{os.getpid()}")
    for hosts in (0, *map(int, given.hosts.split(","))):
        pid = os.fork()
        if not pid:
            if hosts:
                print(meet(hosts, facts.read_bytes(), given.profile), flush=True)
            else:
                look(facts)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            print(f"{hosts} hosts: failed", flush=True)
    print(f"facts of a host: {facts.stat().st_size} bytes")
    facts.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
