"""One log to facts: events, tracebacks, how far NCCL came, how ranks ended.

Most lines of a large log are NCCL's INFO lines that differ from earlier ones of their process in numbers only; those are
passed over. All others are searched for literals, and only lines that hold one are taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ddp_doctor.facts.log import LogEvent, NcclProgress, RankEnd
from ddp_doctor.model import Fact, Subject
from ddp_doctor.readers.events import EventReader, Recogniser
from ddp_doctor.readers.job_log import TRIGGERS, TracebackReader
from ddp_doctor.readers.line import LONGEST, Line, harmless_text, read_line
from ddp_doctor.readers.nccl import NcclReader
from ddp_doctor.signatures import Signature

MOST_WORDS = 40
"""Lines at the beginning of a log whose words are looked at where nothing else is known in it."""
MOST_TOLD = 200
"""Lines up to which a log can be what a person tells; the words of a longer one are those of programs."""

WEAK = 1.5
"""Clues below this weight count in long logs only beside something that training jobs alone write."""

_INFO = b" NCCL INFO "  # holds none of the characters that are taken out
_NUMBERS = b"0123456789abcdefx"
"""Taken out of an INFO message to see whether its like was there before: numbers and addresses, decimal or hex."""
_MOST_KINDS = 100_000
_TELLS_ANEW = {
    b"Init START": re.compile(b"Init START"),
    b"Init COMPLETE": re.compile(b"Init COMPLETE".translate(None, _NUMBERS)),
    b"onnect to ": re.compile(b"onnt to .*(?:rturn|il)"),
}
"""Messages that say something by their numbers, a communicator or an address that nobody answers at, and what is left of
them in kinds."""
_PROCESS = re.compile(rb"(?<![\w.-])[\w.-]{1,255}:\d+:(?=\d+ \[-?\d+\] NCCL )")
_END = re.compile(r"exitcode\s*:?\s*(?P<code>-?\d+)\)?(?: \(pid: (?P<pid>\d+)\))?(?:.*local_rank: (?P<local>\d+))?")
_END_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")


class LogReader:
    """Reads logs by the signatures of all packs."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        every = tuple(signatures)
        self._words = Recogniser(signature for signature in every if signature.sort == "word")
        signatures = (signature for signature in every if signature.sort != "word")
        more = ("exitcode", "(local_rank:", " nccl ", "nccl version", *TRIGGERS)
        self._recogniser = Recogniser(signatures, also=more)

    def read(self, data: bytes, source: str, base: int = 0) -> list[Fact]:
        """The facts of one log. `base` is the number of lines read before it, which orders events of several logs."""
        return self.read_blocks([data], source, base)

    def read_blocks(self, blocks: Iterable[bytes], source: str, base: int = 0) -> list[Fact]:
        """The facts of a log that comes in blocks of any size."""
        reading = _Reading(self._recogniser, source, base)
        seen: set[bytes] = set()
        number = 0
        first: list[bytes] = []
        for joined in lines_of(blocks):
            first = first or joined.split(b"\n", MOST_WORDS)[:MOST_WORDS]
            kinds = joined.translate(None, _NUMBERS).split(b"\n")
            for place, line in self._worth_reading(joined, kinds, seen, reading):
                reading.line(line, number + place + 1)
            number += len(kinds)
        facts = reading.facts()
        if number > MOST_TOLD:
            return facts if any(map(_of_a_job, facts)) else [fact for fact in facts if not _is_weak(fact)]
        return facts if any(map(_tells, facts)) else [*facts, *self._about(first, source, base)]

    def _about(self, lines: Sequence[bytes], source: str, base: int) -> list[Fact]:
        """What the beginning of a log speaks of in which nothing is known."""
        reader = EventReader(self._words, source, base=base)
        seen: set[bytes] = set()
        for number, raw in enumerate(lines, 1):
            kind = raw.translate(None, _NUMBERS)
            if kind not in seen:
                seen.add(kind)
                reader.feed(raw, number)
        first: dict[str, Fact] = {}
        for event in reader.events():
            first.setdefault(event.signature, event)
        return list(first.values())

    def _worth_reading(
        self, joined: bytes, kinds: list[bytes], seen: set[bytes], reading: _Reading
    ) -> Iterator[tuple[int, bytes]]:
        """The lines, of one piece and these kinds, that may tell something new: each with its place, in order."""
        find = self._recogniser.anchors.search
        distinct = set(kinds)
        fresh = distinct - seen
        words = [word for word, without in _TELLS_ANEW.items() if any(without.search(kind) for kind in distinct)]
        anew = set(_places(words, joined))
        several = _several(joined, len(kinds), reading)
        quiet = not several and not reading.tracebacks.listening
        if quiet and not fresh and not anew:
            return
        lines = joined.split(b"\n")
        if quiet and len(seen) < _MOST_KINDS and all(_INFO in kind for kind in fresh):
            for place in _first_of_each(kinds, lines, anew, seen):
                yield place, lines[place]
            return
        for place, kind in enumerate(kinds):
            if not several and kind in seen and place not in anew:
                continue
            if _INFO in kind:
                if several:
                    kind = lines[place].partition(_INFO)[0] + kind
                    if kind in seen and place not in anew:
                        continue
                if len(seen) > _MOST_KINDS or lines[place].endswith(b"START"):
                    seen.clear()
                seen.add(kind)
                yield place, lines[place]
            elif reading.tracebacks.listening or find(lines[place].lower()):
                yield place, lines[place]


def _first_of_each(kinds: list[bytes], lines: list[bytes], anew: set[int], seen: set[bytes]) -> Iterator[int]:
    """The places of lines of a kind not seen before, and those that tell anew; a new communicator begins afresh."""
    starts = sorted(place for place in anew if lines[place].endswith(b"START"))
    for begin, end in zip((0, *starts), (*starts, len(kinds)), strict=True):
        if begin in starts:
            seen.clear()
        first = dict(zip(reversed(kinds[begin:end]), range(end - 1, begin - 1, -1), strict=True))
        new = first.keys() - seen
        seen.update(new)
        yield from sorted({first[kind] for kind in new}.union(place for place in anew if begin <= place < end))


def _tells(fact: Fact) -> bool:
    """Whether a fact says more than that a line is harmless."""
    return not isinstance(fact, (LogEvent, NcclProgress)) or (
        isinstance(fact, LogEvent) and (fact.sort == "progress" or (bool(fact.leads) and fact.sort != "harmless"))
    )


def _of_a_job(fact: Fact) -> bool:
    """Whether a fact is more than a word that any program may write."""
    return not isinstance(fact, LogEvent) or fact.sort != "clue"


def _is_weak(fact: Fact) -> bool:
    return isinstance(fact, LogEvent) and fact.weight < WEAK


def _several(joined: bytes, count: int, reading: _Reading) -> bool:
    """Whether lines of more than one process of NCCL's stand among so many: then each keeps its own kinds."""
    if reading.processes > 1:
        return _INFO in joined
    first = _PROCESS.search(joined)
    if first is None:
        return _INFO in joined
    own = joined.count(first[0])
    return (own < count and own < joined.count(_INFO)) or reading.other_than(first[0])


def _places(words: Iterable[bytes], joined: bytes) -> Iterator[int]:
    """The numbers of the lines in which one of the words stands. Looking for each alone is faster than for all at once."""
    for word in words:
        place = last = 0
        while (found := joined.find(word, last)) >= 0:
            place += joined.count(b"\n", last, found)
            last = found + 1
            yield place


class _Reading:
    def __init__(self, recogniser: Recogniser, source: str, base: int) -> None:
        self.tracebacks = TracebackReader(source)
        self._source = source
        self._events = EventReader(recogniser, source, base=base)
        self._nccl = NcclReader(source)
        self._ends: list[Fact] = []
        self._base = base
        self._rank: tuple[int, int] | None = None

    def other_than(self, process: bytes) -> bool:
        """Whether NCCL's lines so far came from another process, `host:pid:`."""
        return bool(self._nccl.count) and not self._nccl.knows(process)

    @property
    def processes(self) -> int:
        """How many processes have written NCCL's lines so far."""
        return self._nccl.count

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
        progress = self._nccl.facts()
        told = [*self._events.events(), *self.tracebacks.facts, *self._ends]
        return [*_with_ranks(told, progress), *progress]


def _with_ranks(facts: Iterable[Fact], progress: Sequence[NcclProgress]) -> Iterator[Fact]:
    """The facts with the rank that NCCL's lines give to their process, or to the whole log where it is one rank's."""
    facts = list(facts)
    ranks = {(each.subject.host, each.subject.pid): each.subject.rank for each in progress}
    ranks |= {("", fact.subject.pid): fact.subject.rank for fact in facts if isinstance(fact, RankEnd)}
    told = {subject.rank for subject in (each.subject for each in (*progress, *facts)) if subject.rank is not None}
    processes = {(each.subject.host, each.subject.pid) for each in progress}
    alone = next(iter(told)) if len(told) == 1 and len(processes) < 2 else None
    hosts = {each.subject.host for each in progress if each.subject.host}
    host = next(iter(hosts)) if len(hosts) == 1 else ""
    for fact in facts:
        subject = fact.subject
        if subject.rank is None:
            of_process = ranks.get((subject.host, subject.pid)) if subject.pid is not None else alone
            rank = ranks.get(("", subject.pid)) if of_process is None and subject.pid is not None else of_process
            subject = msgspec.structs.replace(subject, rank=rank)
        if not subject.host and host:
            subject = msgspec.structs.replace(subject, host=host)
        yield fact if subject == fact.subject else msgspec.structs.replace(fact, subject=subject)


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines of blocks of bytes, a piece per block and without its last end of line; of one longer than LONGEST the
    beginning."""
    rest = b""
    cut = False
    for block in blocks:
        if cut:
            end = block.find(b"\n")
            if end < 0:
                continue  # more of a line that is long enough
            block, cut = block[end:], False
        end = block.rfind(b"\n")
        if end < 0:
            rest += block
        else:
            yield b"".join((rest, memoryview(block)[:end])) if rest else block[:end]
            rest = block[end + 1 :]
        if len(rest) > LONGEST:
            rest, cut = rest[:LONGEST], True
    if rest:
        yield rest
