"""One log to facts: events, tracebacks, how far NCCL came, how ranks ended.

Most lines of a large log are NCCL's INFO lines that repeat; they are told apart by a few bytes. All others are searched
for literals, and only lines that hold one are taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddp_doctor.facts.log import RankEnd
from ddp_doctor.model import Fact, Subject
from ddp_doctor.readers.events import EventReader, Recogniser
from ddp_doctor.readers.job_log import TRIGGERS, TracebackReader
from ddp_doctor.readers.line import LONGEST, Line, harmless_text, read_line
from ddp_doctor.readers.nccl import NcclReader
from ddp_doctor.signatures import Signature

BLOCK = 1 << 20

_INFO = b" NCCL INFO "
_REPEATED = frozenset(
    (
        *(b"Channe", b"Trees ", b"Connec", b"Settin", b"thread", b"P2P Ch", b"P2P is", b"Could ", b"comm 0", b"Check "),
        *(b"Ring 0", b"Ring 1", b"Tree 0", b"Tree 1", b"Patter", b"NVLS c", b"AllRed", b"AllGat", b"Broadc", b"Reduce"),
        *(b"Send: ", b"Recv: ", b"Alloca", b"Mem Re", b"MemMan", b"=== Sy", b"CPU/0 ", b"+ PCI[", b"+ NVL[", b"Ensure"),
        *(b"Cuda H", b"Cuda A", b"Proxy ", b"[Proxy", b"NET/OF", b"Latenc", b"Bandwi", b"MNNVL ", b"Legacy"),
    )
)
"""First bytes of INFO messages of which one per process tells as much as a thousand."""
_END = re.compile(r"exitcode\s*:?\s*(?P<code>-?\d+)\)?(?: \(pid: (?P<pid>\d+)\))?(?:.*local_rank: (?P<local>\d+))?")
_END_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")


class LogReader:
    """Reads logs by the signatures of all packs."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        more = ("exitcode", "(local_rank:", " nccl ", "nccl version", *TRIGGERS)
        self._recogniser = Recogniser(signatures, also=more)

    def read(self, data: bytes, source: str, base: int = 0) -> list[Fact]:
        """The facts of one log. `base` is the number of lines read before it, which orders events of several logs."""
        return self.read_lines(lines_of([data]), source, base)

    def read_lines(self, lines: Iterable[bytes], source: str, base: int = 0) -> list[Fact]:
        """The facts of lines without their ends."""
        reading = _Reading(self._recogniser, source, base)
        find = self._recogniser.anchors.search
        seen: set[bytes] = set()
        tracebacks = reading.tracebacks
        for number, raw in enumerate(lines, 1):
            at = raw.find(_INFO)
            if at >= 0:
                head = raw[at + 11 : at + 17]
                if head in _REPEATED:
                    prefix = raw[raw.rfind(b" ", 0, max(0, raw.rfind(b" ", 0, at))) + 1 : at]
                    via = raw.find(b" via ", at) if head == b"Channe" else -1
                    key = prefix + head + (raw[via : via + 8] if via >= 0 else b"")
                    if key in seen:
                        continue
                    seen.add(key)
                reading.line(raw, number)
            elif tracebacks.listening or find(raw.lower()):
                reading.line(raw, number)
        return reading.facts()


class _Reading:
    def __init__(self, recogniser: Recogniser, source: str, base: int) -> None:
        self.tracebacks = TracebackReader(source)
        self._source = source
        self._events = EventReader(recogniser, source, base=base)
        self._nccl = NcclReader(source)
        self._ends: list[Fact] = []
        self._base = base
        self._rank: tuple[int, int] | None = None

    def line(self, raw: bytes, number: int) -> None:
        line = read_line(raw)
        if line.nccl:
            self._nccl.feed(line, number)
        else:
            self.tracebacks.feed(harmless_text(raw[:LONGEST].decode("utf-8", "replace")), number)
            self._end(line, number)
        self._events.feed(raw, number, line)

    def _end(self, line: Line, number: int) -> None:
        if match := _END_RANK.search(line.text):
            self._rank = (int(match["rank"]), int(match["local"]))
        elif match := _END.search(line.text):
            rank, local = self._rank or (line.rank, None)
            pid = int(match["pid"]) if match["pid"] else line.pid
            self._ends.append(
                RankEnd(
                    subject=Subject(host=line.host, pid=pid, rank=rank),
                    source=f"{self._source}:{number}",
                    code=int(match["code"]),
                    local_rank=int(match["local"]) if match["local"] else local,
                    at=line.at,
                    order=self._base + number,
                )
            )
            self._rank = None

    def facts(self) -> list[Fact]:
        return [*self._events.events(), *self.tracebacks.facts, *self._nccl.facts(), *self._ends]


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of blocks of bytes; of one longer than LONGEST the beginning."""
    rest = b""
    skipping = False
    for block in blocks:
        pieces = block.split(b"\n")
        if skipping:
            if len(pieces) == 1:
                continue
            pieces[0] = b""
            skipping = False
            rest = rest[:LONGEST]
        pieces[0] = rest + pieces[0]
        rest = pieces.pop()
        yield from pieces
        if len(rest) > LONGEST:
            rest, skipping = rest[:LONGEST], True
    if rest:
        yield rest
