"""NCCL's own lines to how far each process came, by the order in which NCCL's versions do things."""

from __future__ import annotations

import re

from ddp_doctor.facts.log import NcclProgress
from ddp_doctor.model import Stage, Subject
from ddp_doctor.readers.line import Line

START_BEFORE_RING = (2, 23)
"""From this version on `Init START` comes before the bootstrap's ring is complete, until then after it."""
MOST_COMMUNICATORS = 20_000

BOOTSTRAP, DRIVER, NETWORK, START, MET, TOPOLOGY, GRAPH, RINGS, PROXIES, CHANNELS, CONNECTED, SETUP, COMPLETE = range(
    1, 14
)

_PHASES = (
    (re.compile(r"^Bootstrap ?: Using"), BOOTSTRAP),
    (re.compile(r"^(?:cudaDriverVersion|NCCL version)"), DRIVER),
    (re.compile(r"^(?:NET/|Using network|DMA-BUF is available)"), NETWORK),
    (re.compile(r"- Init START"), START),
    (re.compile(r"^Bootstrap timings"), MET),
    (
        re.compile(r"^(?:P2P is disabled|Could not enable P2P|Legacy IPC|NVLS multicast support|Setting affinity)"),
        TOPOLOGY,
    ),
    (re.compile(r"(?:Net|CollNet) devices$"), GRAPH),
    (
        re.compile(r"^(?:comm 0x\S+ rank \d+ nRanks|Channel \d+/\d+ ?: *\d+(?: +\d+)*$|Trees|P2P Chunksize|Check P2P)"),
        RINGS,
    ),
    (re.compile(r"^(?:\[Proxy|proxy listening|Created CUDA context)"), PROXIES),
    (re.compile(r"^Channel .* via "), CHANNELS),
    (re.compile(r"^Connected "), CONNECTED),
    (re.compile(r"^(?:threadThresholds|\d+ coll channels|CC (?:Off|On))"), SETUP),
    (re.compile(r"- Init COMPLETE"), COMPLETE),
)
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
        return [process.progress() for process in self._processes.values() if process.phase]


class _Process:
    def __init__(self, subject: Subject) -> None:
        self.phase = 0
        self._subject = subject
        self._source = ""
        self._last = ""
        self._complete = False
        self._comm: dict[str, str] = {}
        self._version = ""
        self._network = ""
        self._interfaces: tuple[str, ...] = ()
        self._peers: dict[str, None] = {}

    def feed(self, line: Line, source: str) -> None:
        message = line.message
        if match := _PEER.search(message):
            self._peers[match[1]] = None
        if match := _VERSION.search(message):
            self._version = match[1]
        phase = next((phase for pattern, phase in _PHASES if pattern.search(message)), 0)
        if not phase:
            return
        if phase == BOOTSTRAP:
            self._interfaces = tuple(f"{name} {address}" for name, address in _INTERFACE.findall(message))
        if message.startswith("Using network "):
            self._network = message.removeprefix("Using network ").split()[0]
        if phase in (START, COMPLETE) and (match := _COMM.search(message)):
            self._comm = {name: value for name, value in match.groupdict().items() if value}
        if phase == START:
            self.phase, self._complete = 0, False
        if phase == COMPLETE:
            self._complete = True
            self._peers.clear()
        if phase >= self.phase or (self._complete and phase in (CHANNELS, CONNECTED)):
            self.phase, self._last, self._source = phase, line.text[:400], source

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
            stage=self._stage(),
            complete=self._complete,
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

    def _stage(self) -> Stage:
        """What a process does after its last line; after `Init START` the versions differ."""
        if self._complete and self.phase == CHANNELS:
            return Stage.TRANSPORT
        if self._complete:
            return Stage.FIRST_COLLECTIVE
        if self.phase == START and not self._old:
            return Stage.COMM_BOOTSTRAP
        if self.phase < START:
            return Stage.COMM_BOOTSTRAP
        return Stage.COMM_TOPOLOGY if self.phase < CHANNELS else Stage.TRANSPORT

    @property
    def _old(self) -> bool:
        numbers = tuple(int(part) for part in self._version.split(".")[:2]) if self._version else START_BEFORE_RING
        return numbers < START_BEFORE_RING
