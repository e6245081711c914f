"""What the lines of saved logs say: events, how far NCCL came in each process, how ranks ended, and what follows."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.facts.communicator import Phase
from ddp_doctor.model import Confidence, Evidence, Fact, Folded, Severity, Stage

Sort = Literal["cause", "ambiguous", "clue", "echo", "harmless", "progress", "word"]
"""What a line is worth. A cause names a fault; an ambiguous line is an error several faults write; a clue is a setting,
a command or a piece of code that makes a fault thinkable; an echo is what survivors print; progress is a sign of life; a
word says what the log is about and counts only where nothing else in it is known."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Other leads of an event, where the rest of the evidence fits.

    `seen` names signatures that must all be present, `unless` ones that must not; `differs` and `repeats` name a field
    of this signature whose values over all its events must not all be equal, or must not all be distinct.
    """

    finding: str
    confidence: Confidence = Confidence.POSSIBLE
    seen: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    differs: str = ""
    repeats: str = ""
    summary: str = ""
    weight: float = 3.0


class LogEvent(Fact, frozen=True, kw_only=True):
    """A line that a signature knows. `times` counts lines of one log that differ in nothing but time and process.

    `leads` are the findings it hints at, the best first; they are hints only: the check of that id decides.
    `order` is its place among all lines read, and `at` the time it was written, seconds of an unknown epoch.
    """

    signature: str
    sort: Sort
    leads: tuple[str, ...] = ()
    confidence: Confidence = Confidence.POSSIBLE
    weight: float = 1.0
    summary: str = ""
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    line: str = ""
    times: int = 1
    order: int = 0
    at: float | None = None
    stage: Stage | None = None

    def text(self) -> str:
        return self.line

    def evidence(self, value: str | None = None) -> Evidence:
        """The line as a quotation."""
        return super().evidence(value)


class Suspicion(Fact, frozen=True, kw_only=True):
    """What all log events together say about one finding; `place` orders suspicions, 0 is the first failure."""

    finding: str
    confidence: Confidence
    place: int
    summary: str = ""
    severity: Severity | None = None
    events: tuple[LogEvent, ...] = ()
    folded: tuple[Folded, ...] = ()

    def text(self) -> str:
        return self.summary or f"{self.finding}: {self.events[0].line if self.events else ''}"


class NcclProgress(Fact, frozen=True, kw_only=True):
    """How far one process came with one communicator, by its last line that shows progress.

    `peers` are the addresses it kept trying, `interfaces` what its bootstrap uses, `last` the line it stopped at.
    """

    phase: Phase
    stage: Stage
    complete: bool = False
    rank: int | None = None
    ranks: int | None = None
    comm: str = ""
    device: int | None = None
    bus: str = ""
    version: str = ""
    network: str = ""
    interfaces: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    last: str = ""

    def text(self) -> str:
        return self.last


class RankEnd(Fact, frozen=True, kw_only=True):
    """How a rank ended: an exit code or a signal (negative), and the first words of its error where they are told."""

    code: int
    local_rank: int | None = None
    error: str = ""
    at: float | None = None
    order: int = 0

    def text(self) -> str:
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{how}: {self.error}" if self.error else how


class Recorded(Fact, frozen=True, kw_only=True):
    """One collective of one rank, from a flight recorder: the n-th of its group."""

    group: str
    sequence: int
    call: str
    sizes: str = ""
    state: str = ""

    def text(self) -> str:
        return f"group {self.group or 'default'} number {self.sequence}: {self.call} {self.sizes} {self.state}"
