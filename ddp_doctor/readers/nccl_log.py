"""NCCL's own log lines, in every grammar since 2.10, to their parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, cast

import msgspec

Level = Literal["INFO", "WARN", "ATTN", "TRACE", "CALL", "DIAG", "VERSION"]

_NOISE = re.compile(
    r"lib wrapper not initialized|rma_socket requires GDRCopy|Could not find: lib|ncclOsDl(?:open|sym)|Count not open lib"
    r"|Failed to (?:open libibverbs|find CUDA library)|Failed to initialize NET plugin IB|Stack size limit"
)

# a prefix can follow other text in the same line: NCCL and Python write to one stream without a common lock
_PREFIX = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)\] ?)?"
    r"(?P<host>[\w.-]+):(?P<pid>\d+)(?::(?P<tid>\d+))? "
    r"(?:\[(?P<device>-?\d+)\] )?"
    r"(?:(?P<file>[\w/.-]+\.(?:cc|cu|h)):(?P<line>\d+) (?:\((?P<function>\w+)\) )?)?"
    r"(?:\d+\.\d+ [\w:]+ )?"
    r"NCCL (?P<level>INFO|WARN|ATTN|TRACE|CALL|DIAG) "
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
    matches = list(_PREFIX.finditer(line))
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
