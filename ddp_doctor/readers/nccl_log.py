"""NCCL's own log lines, in every grammar since 2.10, to their parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, cast, get_args

import msgspec

from ddp_doctor.facts.communicator import Phase

Level = Literal["INFO", "WARN", "ATTN", "TRACE", "CALL", "DIAG", "VERSION"]

_NOISE = re.compile(
    r"lib wrapper not initialized|rma_socket requires GDRCopy|Could not find: lib|ncclOsDl(?:open|sym)|Count not open lib"
    r"|Failed to (?:open libibverbs|find CUDA library)|Failed to initialize NET plugin IB|Stack size limit"
)

# a prefix can follow other text in the same line: NCCL and Python write to one stream without a common lock
PREFIX = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)\] ?)?"
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>\d+)(?::(?P<tid>\d+))? "
    r"(?:\[(?P<device>-?\d+)\] )?"
    r"(?:(?P<file>[\w/.-]+\.(?:cc|cu|h)):(?P<line>\d+) (?:\((?P<function>\w+)\) )?)?"
    r"(?:\d+\.\d+ [\w:]+ )?"
    r"NCCL (?P<level>INFO|WARN|ATTN|TRACE|CALL|DIAG) "
)
BOOTSTRAP_BEFORE_START = (2, 22, 3)
"""Up to here `Init START` is printed when the bootstrap is over, later before it begins."""
PHASES = cast("tuple[Phase, ...]", get_args(Phase))
_MARK = re.compile(
    r"(?P<start>.*Init START)|(?P<complete>.*Init COMPLETE)"
    r"|(?P<interface>Bootstrap ?: Using)"
    r"|(?P<driver>cudaDriverVersion|NCCL version)"
    r"|(?P<network>(?P<chosen>Using network)|NET/(?!Plugin)|DMA-BUF is available|Assigned NET plugin)"
    r"|(?P<exchange>Bootstrap timings)"
    r"|(?P<topology>P2P is disabled|Could not enable P2P|Legacy IPC not supported|NVLS multicast support|Setting affinity"
    r"|Affinity for GPU|MNNVL busId|GPU Direct RDMA (?:Enabled|Disabled) for)"
    r"|(?P<rings>.*(?:Net|CollNet) devices$|comm 0x\w+ rank \d+ nRanks"
    r"|Channel \d+/\d+ ?:(?:\s+\d+)+$|Trees|P2P Chunksize|Check P2P Type|\[Proxy|proxy listening"
    r"|Created CUDA context)"
    r"|(?P<connect>Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\] .*via)"
    r"|(?P<connected>Connected (?:all|binomial|NVLS)|threadThresholds|\d+ coll channels|CC (?:Off|On))"
)

_BARE_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+\.\d+)(?:\+cuda[\d.]+)?\s*$")


class NcclLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of NCCL. `device` is the calling thread's CUDA device and never the rank; it can be garbage without a driver.

    Only a bare `NCCL version` line (level VERSION) has no host and PID. `file` and `line` are NCCL's own source; the
    number shifts with every release. `time` is NCCL's local time stamp, empty where the line has none.
    """

    level: Level
    message: str
    host: str = ""
    pid: int | None = None
    tid: int | None = None
    device: int | None = None
    file: str = ""
    line: int | None = None
    function: str = ""
    time: str = ""

    def text(self) -> str:
        """The line without time stamp and process, as a person would quote it."""
        where = f"{self.file}:{self.line} " if self.file else ""
        return self.message if self.level == "VERSION" else f"{where}NCCL {self.level} {self.message}"


def parse_line(line: str) -> NcclLine | None:
    """The (first) NCCL line in one line of a log, or None. Cheap where the line is not NCCL's."""
    return next(parse_all(line), None)


def parse_all(line: str) -> Iterator[NcclLine]:
    """Every NCCL line in one line of a log; two writers of one stream can glue them together."""
    if "NCCL " not in line:
        return
    matches = list(PREFIX.finditer(line))
    if not matches:
        bare = _BARE_VERSION.search(line)
        if bare:
            yield NcclLine(level="VERSION", message=bare[0].rstrip())
        return
    ends = [match.start() for match in matches[1:]] + [len(line)]
    for match, end in zip(matches, ends, strict=True):
        yield NcclLine(
            level=cast("Level", match["level"]),
            message=line[match.end() : end].strip(),
            host=match["host"],
            pid=int(match["pid"]),
            tid=_number(match["tid"]),
            device=_number(match["device"]),
            file=match["file"] or "",
            line=_number(match["line"]),
            function=match["function"] or "",
            time=match["time"] or "",
        )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def is_noise(line: NcclLine) -> bool:
    """Whether a healthy NCCL prints this too: an optional library that is not there."""
    return _NOISE.search(line.message) is not None


def is_noise_text(last_error: str) -> bool:
    """The same of what ncclGetLastError returns, which nothing ever clears."""
    return _NOISE.search(last_error) is not None


class PhaseReader:
    """Follows how far one process has come with its latest communicator, by its INFO lines in their order.

    A line says what has been done, so the process stands *behind* it; which step comes next depends on the version.
    Without a version, the newer order.
    """

    def __init__(self, version: tuple[int, ...] = ()) -> None:
        self.version = version
        self.phase: Phase = "silent"
        self.complete = False

    def feed(self, message: str) -> str:
        """The mark that a message is (`start` for Init START), empty where it shows no progress."""
        found = _MARK.match(message)
        if found is None:
            return ""
        mark = found.lastgroup or ""
        phase = self._phase(mark, chosen=found["chosen"] is not None)
        if mark == "start":
            self.phase, self.complete = "silent", False
        if self.complete and phase in ("connect", "connected"):
            phase = "first-connect" if phase == "connect" else "first-connected"
        self.complete = self.complete or phase == "complete"
        if PHASES.index(phase) < PHASES.index(self.phase):
            return ""
        self.phase = phase
        return mark

    def _phase(self, mark: str, chosen: bool) -> Phase:
        old = bool(self.version) and self.version <= BOOTSTRAP_BEFORE_START
        if mark == "start":
            return "exchange" if old else "bootstrap"
        return "bootstrap" if chosen and old else cast("Phase", mark)
