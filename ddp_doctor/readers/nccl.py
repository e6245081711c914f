"""NCCL's own lines of one log to how far each process came."""

from __future__ import annotations

import re

from ddp_doctor.facts.communicator import STAGES, Phase
from ddp_doctor.facts.log import NcclProgress
from ddp_doctor.model import Subject
from ddp_doctor.readers.line import Line
from ddp_doctor.readers.nccl_log import PhaseReader

MOST_COMMUNICATORS = 20_000

_COMM = re.compile(
    r"comm (?P<comm>\S+) rank (?P<rank>\d+) nranks (?P<ranks>\d+) cudaDev (?P<device>-?\d+)"
    r"(?: nvmlDev -?\d+)?(?: busId (?P<bus>\w+))?(?: commId (?P<id>\w+))?"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_INTERFACE = re.compile(r"(?:\[\d+\])?([\w.-]+):([0-9a-fA-F.:%\w]+?)<\d+>")
_PEER = re.compile(r"connect to (\S+?)(?:<\d+>)? returned")


class NcclReader:
    """Follows the processes of one log."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._processes: dict[tuple[str, int | None], _Process] = {}

    def knows(self, process: bytes) -> bool:
        """Whether `host:pid:` is one of them."""
        host, pid, _ = process.decode("utf-8", "replace").split(":")
        return (host, int(pid)) in self._processes

    @property
    def count(self) -> int:
        """How many processes there were."""
        return len(self._processes)

    def feed(self, line: Line, number: int) -> None:
        """Look at one line of NCCL's."""
        key = (line.host, line.pid)
        process = self._processes.get(key)
        if process is None:
            if len(self._processes) >= MOST_COMMUNICATORS:
                return
            process = self._processes[key] = _Process(Subject(host=line.host, pid=line.pid, rank=line.rank))
        process.feed(line, f"{self._source}:{number}")

    def facts(self) -> list[NcclProgress]:
        """How far each process came with its latest communicator."""
        return [process.progress() for process in self._processes.values() if process.phase != "silent"]


class _Process:
    def __init__(self, subject: Subject) -> None:
        self._reader = PhaseReader()
        self._subject = subject
        self._source = ""
        self._last = ""
        self._comm: dict[str, str] = {}
        self._version = ""
        self._network = ""
        self._interfaces: tuple[str, ...] = ()
        self._peers: dict[str, None] = {}

    @property
    def phase(self) -> Phase:
        return self._reader.phase

    def feed(self, line: Line, source: str) -> None:
        message = line.message
        if match := _PEER.search(message):
            self._peers[match[1]] = None
        if match := _VERSION.search(message):
            self._version = match[1]
            self._reader.version = tuple(map(int, self._version.split(".")))
        mark = self._reader.feed(message)
        if not mark:
            return
        self._last, self._source = line.text[:400], source
        if mark == "interface":
            self._interfaces = tuple(f"{name} {address}" for name, address in _INTERFACE.findall(message))
        if message.startswith("Using network "):
            self._network = message.removeprefix("Using network ").split()[0]
        if mark in ("start", "complete") and (match := _COMM.search(message)):
            self._comm = {name: value for name, value in match.groupdict().items() if value}
        if mark == "complete":
            self._peers.clear()

    def progress(self) -> NcclProgress:
        def number(name: str) -> int | None:
            return int(self._comm[name]) if name in self._comm else None

        rank = number("rank")
        return NcclProgress(
            subject=Subject(
                host=self._subject.host, pid=self._subject.pid, rank=self._subject.rank if rank is None else rank
            ),
            source=self._source,
            phase=self.phase,
            stage=STAGES[self.phase],
            complete=self._reader.complete,
            rank=rank,
            ranks=number("ranks"),
            comm=self._comm.get("id", ""),
            device=number("device"),
            bus=self._comm.get("bus", ""),
            version=self._version,
            network=self._network,
            interfaces=self._interfaces,
            peers=tuple(self._peers),
            last=self._last,
        )
