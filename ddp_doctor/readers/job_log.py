"""What a training job printed, to raw facts: Python tracebacks as stacks, and the store keys somebody waited for."""

from __future__ import annotations

import re

from ddp_doctor.facts.process import Frame, Stack, StoreWait
from ddp_doctor.model import Fact, Subject

MOST_TRACEBACKS = 1000

_RANK_PREFIX = re.compile(r"^\[(?:\w+)?rank(\d+)\]:? ?", re.IGNORECASE)
_THREAD_DIED = re.compile(r"Exception in thread (.+?):\s*$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*$")
_CHAINED = re.compile(r"^(During handling of the above|The above exception was the direct cause)")
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in (.+?)\s*$')
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Exit|Timeout)\w*)(?::\s?(.*))?$")
_STORE_WAIT = re.compile(r"wait timeout after (\d+)ms, keys: (/?[\w/.:-]+(?:, ?/?[\w/.:-]+)*)")


def read_log(text: str, source: str, host: str = "") -> list[Fact]:
    """Facts of one log. `source` names it; each fact's source is `source:line`."""
    return _Reading(source, host).read(text)


class _Reading:
    def __init__(self, source: str, host: str) -> None:
        self._source = source
        self._host = host
        self._facts: list[Fact] = []
        self._tracebacks = 0

    def read(self, text: str) -> list[Fact]:
        thread_name = ""
        frames: list[Frame] | None = None
        start = 0
        previous = ""
        for number, raw in enumerate(text.splitlines(), 1):
            prefix = _RANK_PREFIX.match(raw)
            rank = int(prefix[1]) if prefix else None
            line = raw[prefix.end() :] if prefix else raw
            self._store_wait(line, number, rank)
            if match := _THREAD_DIED.search(line):
                thread_name = match[1]
            elif _TRACEBACK.search(line):
                frames, start = [], number
                if not (_THREAD_DIED.search(previous) or _CHAINED.search(previous)):
                    thread_name = ""
            elif frames is not None and (match := _FRAME.match(line)):
                frames.append(Frame(function=match[3], file=match[1], line=int(match[2])))
            elif frames and not line.startswith((" ", "\t")) and (match := _EXCEPTION.match(line.strip())):
                self._stack(frames, thread_name, line.strip(), start, rank)
                frames = None
            if line.strip():
                previous = line
        return self._facts

    def _stack(self, frames: list[Frame], thread_name: str, ended: str, start: int, rank: int | None) -> None:
        if self._tracebacks >= MOST_TRACEBACKS:
            return
        self._tracebacks += 1
        self._facts.append(
            Stack(
                subject=Subject(host=self._host, rank=rank),
                source=f"{self._source}:{start}",
                thread_name=thread_name,
                frames=tuple(reversed(frames)),
                ended=ended,
                process=self._source if rank is None else f"{self._source} rank {rank}",
            )
        )

    def _store_wait(self, line: str, number: int, rank: int | None) -> None:
        if match := _STORE_WAIT.search(line):
            self._facts.append(
                StoreWait(
                    subject=Subject(host=self._host, rank=rank),
                    source=f"{self._source}:{number}",
                    keys=tuple(key.strip() for key in match[2].split(",")),
                    milliseconds=int(match[1]),
                    process=self._source if rank is None else f"{self._source} rank {rank}",
                    rank=rank,
                    line=line.strip(),
                )
            )
