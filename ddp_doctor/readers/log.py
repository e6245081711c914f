"""One log to facts: events, tracebacks, how far NCCL came, how ranks ended."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_doctor.model import Fact
from ddp_doctor.readers.events import EventReader, Recogniser
from ddp_doctor.readers.line import LONGEST
from ddp_doctor.signatures import Signature


class LogReader:
    """Reads logs by the signatures of all packs."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._recogniser = Recogniser(signatures)

    def read(self, data: bytes, source: str, base: int = 0) -> list[Fact]:
        """The facts of one log. `base` is the number of lines read before it, which orders events of several logs."""
        events = EventReader(self._recogniser, source, base=base)
        number = 0
        for number, raw in enumerate(data.split(b"\n"), 1):
            if self._recogniser.may_match(raw[:LONGEST]):
                events.feed(raw, number)
        return [*events.events()]
