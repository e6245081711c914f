"""Lines of a log to events: a first pass by literals, the full patterns only for what it lets through."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Confidence, Subject
from ddp_doctor.readers.line import Line, read_line
from ddp_doctor.signatures import Signature

MOST_EVENTS = 20_000
MATCHED = 2048
"""Characters of a line in which signatures are searched for; NCCL cuts its own at 1 KiB."""
SHOWN = 400
"""Characters of a line that are kept."""

MOST_KINDS = 10_000
ALIKE = 200
"""Lines that differ in digits only of which this many are looked at; a progress bar writes more."""

KNOWN = ("cause", "ambiguous", "echo")
WORDS = 0.25
"""Signatures up to this weight look for words only; they say nothing where the whole line is known."""

_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_CHATTER = re.compile(r"\[?[IV]\d{4} \d\d:\d\d:\d\d")
"""A line that torch writes for information; a reader's words are not in it."""
_VARYING = re.compile(r"0x[0-9a-f]+|\d+")


class Recogniser:
    """All signatures, ready to be searched for; `also` are literals of other readers, in lower case."""

    def __init__(self, signatures: Iterable[Signature], also: Iterable[str] = ()) -> None:
        self._signatures = tuple((signature, signature.compiled()) for signature in signatures)
        self._of_library = tuple(signature.of_library for signature, _ in self._signatures)
        self._by_anchor: dict[str, list[int]] = {}
        for number, (signature, _) in enumerate(self._signatures):
            for anchor in signature.anchors:
                self._by_anchor.setdefault(anchor.lower(), []).append(number)
        self._numbered = tuple(anchor for anchor in self._by_anchor if any(map(str.isdigit, anchor)))
        self._worded: dict[str, set[int]] = {}
        literals = sorted({*self._by_anchor, *also}, key=len, reverse=True)
        self.anchors = re.compile("|".join(map(re.escape, literals)).encode() or rb"(?!)")

    def matches(self, text: str, *, chatter: bool = False) -> Iterator[tuple[Signature, dict[str, str]]]:
        """Every signature of a line, with what it captured; in a library's `chatter` only its own messages."""
        candidates = self._candidates(text.lower())
        for number in candidates:
            if chatter and not self._of_library[number]:
                continue
            signature, pattern = self._signatures[number]
            match = pattern.search(text)
            if match is None:
                continue
            fields = {name: value for name, value in match.groupdict().items() if value is not None}
            if signature.holds(fields):
                yield signature, fields

    def _candidates(self, lowered: str) -> list[int]:
        """Signatures with an anchor in the text. What anchors without digits say is kept per kind of line."""
        kind = lowered.translate(_NO_DIGITS)
        worded = self._worded.get(kind)
        if worded is None:
            worded = {
                number
                for anchor, numbers in self._by_anchor.items()
                if anchor in kind and not any(map(str.isdigit, anchor))
                for number in numbers
            }
            if len(self._worded) < MOST_KINDS:
                self._worded[kind] = worded
        numbered = {number for anchor in self._numbered if anchor in lowered for number in self._by_anchor[anchor]}
        return sorted(worded | numbered)


class EventReader:
    """Collects the events of one log; lines that differ only in numbers are one event with a count."""

    def __init__(self, recogniser: Recogniser, source: str, host: str = "", base: int = 0) -> None:
        self._recogniser = recogniser
        self._source = source
        self._host = host
        self._base = base
        self._events: dict[tuple[str, ...], LogEvent] = {}
        self._times: dict[tuple[str, ...], int] = {}
        self._kinds: Counter[str] = Counter()

    def feed(self, raw: bytes | str, number: int, line: Line | None = None) -> None:
        """Look at one line that may hold an anchor."""
        line = line or read_line(raw)
        kind = line.text.translate(_NO_DIGITS)
        self._kinds[kind] += 1
        if self._kinds[kind] > ALIKE:
            return
        chatter = line.nccl in ("INFO", "TRACE", "CALL") or bool(_CHATTER.match(line.text))
        found = list(self._recogniser.matches(line.text[:MATCHED], chatter=chatter))
        harmless = any(signature.sort == "harmless" for signature, _ in found)
        known = any(signature.sort in KNOWN and signature.leads and signature.weight > WORDS for signature, _ in found)
        for signature, fields in found:
            # what is known of the line beats the words in it
            if known and line.nccl and signature.sort == "clue" and not signature.of_library:
                continue
            if harmless and signature.sort != "harmless" and signature.confidence is Confidence.POSSIBLE:
                continue
            if known and signature.weight <= WORDS and signature.confidence is Confidence.POSSIBLE:
                continue
            key = (signature.name, str(line.rank), line.host, str(line.pid), *fields.values())
            if not fields:
                key = (*key, _VARYING.sub("#", line.text))
            if key in self._times:
                self._times[key] += 1
            elif len(self._times) < MOST_EVENTS:
                self._times[key] = 1
                self._events[key] = self._event(signature, fields, line, number)

    def events(self) -> list[LogEvent]:
        """Each event once, in the order of the log."""
        return [msgspec.structs.replace(event, times=self._times[key]) for key, event in self._events.items()]

    def _event(self, signature: Signature, fields: dict[str, str], line: Line, number: int) -> LogEvent:
        try:
            summary = signature.summary.format(**fields)
        except (KeyError, IndexError):
            summary = ""
        return LogEvent(
            subject=Subject(host=line.host or self._host, pid=line.pid, rank=line.rank),
            source=f"{self._source}:{number}",
            signature=signature.name,
            sort=signature.sort,
            leads=signature.leads,
            confidence=signature.confidence,
            weight=signature.weight,
            summary=summary,
            fields=fields,
            conditions=signature.when,
            line=line.text[:SHOWN],
            order=self._base + number,
            at=line.at,
            stage=signature.at_stage,
        )
