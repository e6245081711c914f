"""Python tracebacks and vain waits for store keys in what a training job printed, to raw facts."""

from __future__ import annotations

import re

from ddp_doctor.facts.process import Frame, Stack, StoreWait
from ddp_doctor.model import Fact, Subject
from ddp_doctor.readers.line import harmless_text

MOST_TRACEBACKS = 1000
MOST_FRAMES = 500
TRIGGERS = (
    "traceback (most recent call last)",
    "exception in thread",
    "during handling of the above",
    "the above exception was the direct",
    "wait timeout after",
)
"""Literals, in lower case, of the lines at which a reader must begin to listen."""

_RANK_PREFIX = re.compile(r"^\[(?:\w+)?rank(\d+)\]:? ?", re.IGNORECASE)
_THREAD_DIED = re.compile(r"Exception in thread (.+?):\s*$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*$")
_CHAINED = re.compile(r"^(During handling of the above|The above exception was the direct cause)")
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in (.+?)\s*$')
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Exit|Timeout)\w*)(?::\s?(.*))?$")
_STORE_WAIT = re.compile(r"wait timeout after (\d+)ms, keys: (/?[\w/.:-]+(?:, ?/?[\w/.:-]+)*)")


def read_log(text: str, source: str, host: str = "") -> list[Fact]:
    """Facts of one log. `source` names it; each fact's source is `source:line`."""
    reader = TracebackReader(source, host)
    for number, raw in enumerate(text.splitlines(), 1):
        reader.feed(raw, number)
    return reader.facts


class TracebackReader:
    """Takes lines one by one; while `listening`, it needs the next one whatever it says."""

    def __init__(self, source: str, host: str = "") -> None:
        self.facts: list[Fact] = []
        self._source = source
        self._host = host
        self._tracebacks = 0
        self._thread_name = ""
        self._frames: list[Frame] | None = None
        self._start = 0
        self._previous = ""

    @property
    def listening(self) -> bool:
        """Whether it stands inside a traceback or right before one."""
        return self._frames is not None or bool(_THREAD_DIED.search(self._previous) or _CHAINED.search(self._previous))

    def feed(self, raw: str, number: int) -> None:
        """Take the next line."""
        prefix = _RANK_PREFIX.match(raw)
        rank = int(prefix[1]) if prefix else None
        line = raw[prefix.end() :] if prefix else raw
        self._store_wait(line, number, rank)
        if match := _THREAD_DIED.search(line):
            self._thread_name = match[1]
        elif _TRACEBACK.search(line):
            self._frames, self._start = [], number
            if not (_THREAD_DIED.search(self._previous) or _CHAINED.search(self._previous)):
                self._thread_name = ""
        elif self._frames is not None and (match := _FRAME.match(line)):
            if len(self._frames) < MOST_FRAMES:
                self._frames.append(Frame(function=match[3], file=match[1], line=int(match[2])))
        elif self._frames and not line.startswith((" ", "\t")) and (match := _EXCEPTION.match(line.strip())):
            self._stack(self._frames, line.strip(), rank)
            self._frames = None
        if line.strip():
            self._previous = line

    def _stack(self, frames: list[Frame], ended: str, rank: int | None) -> None:
        if self._tracebacks >= MOST_TRACEBACKS:
            return
        self._tracebacks += 1
        self.facts.append(
            Stack(
                subject=Subject(host=self._host, rank=rank),
                source=f"{self._source}:{self._start}",
                thread_name=self._thread_name,
                frames=tuple(reversed(frames)),
                ended=harmless_text(ended),
                process=self._source if rank is None else f"{self._source} rank {rank}",
            )
        )

    def _store_wait(self, line: str, number: int, rank: int | None) -> None:
        if match := _STORE_WAIT.search(line):
            self.facts.append(
                StoreWait(
                    subject=Subject(host=self._host, rank=rank),
                    source=f"{self._source}:{number}",
                    keys=tuple(key.strip() for key in match[2].split(",")),
                    milliseconds=int(match[1]),
                    process=self._source if rank is None else f"{self._source} rank {rank}",
                    rank=rank,
                    line=harmless_text(line.strip()),
                )
            )
