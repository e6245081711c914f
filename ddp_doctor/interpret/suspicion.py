"""Events of logs to suspicions: the first failure over all ranks decides, echoes fold, clues only rank candidates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ddp_doctor.facts.log import Condition, LogEvent, NcclProgress, Recorded, Suspicion
from ddp_doctor.facts.process import Stack, StoreWait
from ddp_doctor.interpret import Interpreter
from ddp_doctor.interpret.ended import ended_apart
from ddp_doctor.model import Confidence, Fact, Facts, Folded, Severity, Stage

NEXT_CANDIDATE = 0.75
"""What the following candidate of one line weighs against the one before it."""
MOST_CANDIDATES = 6
FAILURES = ("cause", "ambiguous", "echo")


class _Lead(msgspec.Struct, frozen=True, kw_only=True):
    finding: str
    confidence: Confidence
    event: LogEvent
    weight: float
    summary: str = ""


def interpret(facts: Facts) -> list[Fact]:
    """A Suspicion per finding that the events hint at."""
    implied = [
        *missing_ranks(facts[NcclProgress]),
        *stopped(facts[NcclProgress]),
        *parted(facts[Recorded]),
        *ended_apart(facts[Stack], facts[StoreWait]),
    ]
    events = sorted((*facts[LogEvent], *implied), key=lambda event: event.order)
    seen = _Seen(events)
    leads = [lead for event in events if event.sort != "word" for lead in _leads(event, seen)]
    if not leads:
        resort = [*stopped(facts[NcclProgress], _LAST_RESORT), *(event for event in events if event.sort == "word")]
        leads = [lead for event in resort for lead in _leads(event, seen)]
    named = _named(leads)
    echoes = [event for event in events if event.sort == "echo"]
    if named:
        folded = [event for event in events if event.sort in ("echo", "ambiguous")]
        return [*_claims(named, leads, folded), *_notes(leads)]
    failed = any(event.sort in FAILURES for event in events)
    living = [event for event in events if event.sort == "progress"]
    if any(event.stage is Stage.TRAINING for event in living) and not failed:
        return _notes(leads)
    if living and not failed:
        leads += _after_complete(living[-1])
    return [*_candidates(leads, echoes, failed), *_notes(leads)]


_AFTER_COMPLETE = ("DDP401", "DDP402", "DDP406", "DDP601", "DDP403", "DDP306")


def _after_complete(event: LogEvent) -> list[_Lead]:
    """What stops ranks whose communicator is complete, where nothing tells that they train: the commonest first."""
    return [
        _Lead(
            finding=finding,
            confidence=Confidence.POSSIBLE,
            event=event,
            weight=0.5 * NEXT_CANDIDATE**place,
            summary="the communicator was complete, and nothing tells that the ranks trained",
        )
        for place, finding in enumerate(_AFTER_COMPLETE)
    ]


def _leads(event: LogEvent, seen: _Seen) -> list[_Lead]:
    """What one event hints at: the first condition that holds replaces the leads it has by itself."""
    for condition in event.conditions:
        if _holds(condition, event, seen):
            return [
                _Lead(
                    finding=condition.finding,
                    confidence=condition.confidence,
                    event=event,
                    weight=condition.weight,
                    summary=condition.summary or event.summary,
                ),
                *(
                    _Lead(finding=other, confidence=Confidence.POSSIBLE, event=event, weight=event.weight * 0.5)
                    for other in event.leads
                    if other != condition.finding
                ),
            ]
    found = []
    weight = event.weight * {"cause": 3.0, "ambiguous": 2.0}.get(event.sort, 1.0)
    for place, finding in enumerate(event.leads):
        sure = event.confidence if place == 0 and event.sort in ("cause", "harmless") else Confidence.POSSIBLE
        found.append(_Lead(finding=finding, confidence=sure, event=event, weight=weight, summary=event.summary))
        weight *= NEXT_CANDIDATE
    return found


class _Seen:
    """Which signatures there are, and how often each value of their fields."""

    def __init__(self, events: Sequence[LogEvent]) -> None:
        self.names = {event.signature for event in events}
        self._values: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for event in events:
            for field, value in event.fields.items():
                self._values[event.signature, field][value] += event.times

    def differs(self, event: LogEvent, field: str) -> bool:
        """Whether events of this signature have other values of a field."""
        return len(self._values[event.signature, field]) > 1

    def repeats(self, event: LogEvent, field: str) -> bool:
        """Whether this event's value of a field comes again."""
        return self._values[event.signature, field][event.fields.get(field, "")] > 1


def _holds(condition: Condition, event: LogEvent, seen: _Seen) -> bool:
    return (
        seen.names.issuperset(condition.seen)
        and seen.names.isdisjoint(condition.unless)
        and (not condition.differs or seen.differs(event, condition.differs))
        and (not condition.repeats or seen.repeats(event, condition.repeats))
    )


def _named(leads: Sequence[_Lead]) -> list[_Lead]:
    """The leads that name a cause, surest and then earliest first; by the clock only where every lead carries a time."""
    sure = [lead for lead in leads if lead.confidence is not Confidence.POSSIBLE and lead.event.sort != "harmless"]
    timed = all(lead.event.at is not None for lead in sure)
    return sorted(
        sure, key=lambda lead: (lead.confidence.rank, (lead.event.at or 0.0) if timed else 0.0, lead.event.order)
    )


def _claims(named: Sequence[_Lead], leads: Sequence[_Lead], folded: Sequence[LogEvent]) -> list[Fact]:
    order = list(dict.fromkeys(lead.finding for lead in named))
    return [
        Suspicion(
            subject=lead.event.subject,
            source=lead.event.source,
            finding=finding,
            confidence=lead.confidence,
            place=place,
            summary=lead.summary,
            events=_of(finding, leads, ("cause", "ambiguous", "clue")),
            folded=_fold(folded) if place == 0 else (),
        )
        for place, finding in enumerate(order)
        for lead in [next(lead for lead in named if lead.finding == finding)]
    ]


def _candidates(leads: Sequence[_Lead], echoes: Sequence[LogEvent], failed: bool) -> list[Fact]:
    """What may be, by weight of all events; a fault that only settings or code hint at is a note."""
    weights: dict[str, float] = defaultdict(float)
    first: dict[str, _Lead] = {}
    loud: set[str] = set()
    told = any(lead.event.sort in ("cause", "ambiguous") for lead in leads)
    for lead in leads:
        if lead.event.sort == "harmless" or (told and lead.event.sort == "echo" and not lead.event.conditions):
            continue
        weights[lead.finding] += lead.weight
        first.setdefault(lead.finding, lead)
        if lead.event.sort in ("cause", "ambiguous"):
            loud.add(lead.finding)
    ranked = sorted(weights, key=lambda finding: (-round(weights[finding], 3), first[finding].event.order))
    return [
        Suspicion(
            subject=first[finding].event.subject,
            source=first[finding].event.source,
            finding=finding,
            confidence=Confidence.POSSIBLE,
            place=place,
            summary=first[finding].summary,
            severity=None if finding in loud else Severity.NOTE,
            events=_of(finding, leads, ("cause", "ambiguous", "clue", "echo", "word", "progress")),
            folded=_fold(echoes) if place == 0 else (),
        )
        for place, finding in enumerate(ranked[:MOST_CANDIDATES])
    ]


def _notes(leads: Sequence[_Lead]) -> list[Fact]:
    """What harmless lines explain about themselves."""
    found: dict[str, _Lead] = {}
    for lead in leads:
        if lead.event.sort == "harmless" and lead.confidence is not Confidence.POSSIBLE:
            found.setdefault(lead.finding, lead)
    return [
        Suspicion(
            subject=lead.event.subject,
            source=lead.event.source,
            finding=finding,
            confidence=lead.confidence,
            place=1000,
            summary=lead.summary,
            severity=Severity.NOTE,
            events=_of(finding, leads, ("harmless",)),
        )
        for finding, lead in found.items()
    ]


def _of(finding: str, leads: Sequence[_Lead], sorts: tuple[str, ...]) -> tuple[LogEvent, ...]:
    events = {
        (lead.event.source, lead.event.signature): lead.event
        for lead in leads
        if lead.finding == finding and lead.event.sort in sorts
    }
    kept: dict[str, LogEvent] = {}
    for event in events.values():
        kept.setdefault(event.source, event)
    return tuple(kept.values())


def _fold(events: Sequence[LogEvent]) -> tuple[Folded, ...]:
    return tuple(Folded(source=event.source, times=event.times, text=event.line) for event in events[:50])


_STOPPED_AT = {
    Stage.COMM_BOOTSTRAP: ("DDP301", "DDP302", "DDP101"),
    Stage.TRANSPORT: ("DDP401", "DDP405", "DDP402", "DDP302"),
}
"""What stops ranks in these phases of NCCL, the commonest first."""

_LAST_RESORT = {Stage.COMM_TOPOLOGY: ("DDP401", "DDP404", "DDP407", "DDP406")}
"""The same for a phase in which so much stops that it counts only where nothing else is known."""

_CONNECTING_BY = {
    "via NET/IB": ("DDP304", "DDP306", "DDP302"),
    "via NET/": ("DDP302", "DDP301", "DDP306"),
    "via SHM": ("DDP405", "DDP404", "DDP403"),
    "via P2P": ("DDP401", "DDP402", "DDP403"),
}
"""The same for a rank whose last line says by which transport it was about to be connected."""


def stopped(processes: Sequence[NcclProgress], phases: Mapping[Stage, tuple[str, ...]] = _STOPPED_AT) -> list[LogEvent]:
    """Clues from where each process's lines end short of a complete communicator."""
    furthest: dict[Stage, NcclProgress] = {}
    for process in processes:
        if process.stage in phases and not (process.complete and process.stage is not Stage.TRANSPORT):
            furthest.setdefault(process.stage, process)
    return [
        LogEvent(
            subject=process.subject,
            source=process.source,
            signature="nccl-stopped",
            sort="clue",
            leads=_by_transport(process) or phases[stage],
            weight=0.7,
            summary=f"NCCL's lines end in {stage.label}",
            line=process.last,
            stage=stage,
        )
        for stage, process in furthest.items()
    ]


def _by_transport(process: NcclProgress) -> tuple[str, ...]:
    return next((leads for words, leads in _CONNECTING_BY.items() if words in process.last), ())


def missing_ranks(processes: Sequence[NcclProgress]) -> list[LogEvent]:
    """A clue where several ranks of a communicator are here and others left no line."""
    groups: dict[tuple[str, int], list[NcclProgress]] = defaultdict(list)
    for process in processes:
        if process.ranks and process.rank is not None:
            groups[process.comm, process.ranks].append(process)
    found = []
    for (_, total), members in groups.items():
        absent = sorted(set(range(total)) - {member.rank for member in members if member.rank is not None})
        if absent and len(members) > 1 and not any(member.complete for member in members):
            first = members[0]
            found.append(
                LogEvent(
                    subject=first.subject,
                    source=first.source,
                    signature="nccl-ranks-missing",
                    sort="clue",
                    leads=("DDP101", "DDP302"),
                    weight=2.0,
                    summary=f"of {total} ranks {len(absent)} left no line of NCCL's: {compress(absent)}",
                    line=first.last,
                    stage=Stage.COMM_BOOTSTRAP,
                )
            )
    return found


def parted(records: Sequence[Recorded]) -> list[LogEvent]:
    """The first collective in which two ranks' recorders differ in operation or shape."""
    by_number: dict[tuple[str, int], list[Recorded]] = defaultdict(list)
    for record in records:
        by_number[record.group, record.sequence].append(record)
    for (group, number), same in sorted(by_number.items(), key=lambda item: item[0][1]):
        calls = {record.call for record in same}
        if len(calls) < 2 and (len({record.sizes for record in same}) < 2 or "gather" in same[0].call):
            continue
        told = "; ".join(f"rank {record.subject.rank}: {record.call} {record.sizes}" for record in same[:4])
        return [
            LogEvent(
                subject=same[0].subject,
                source=same[0].source,
                signature="recorders-differ",
                sort="cause",
                confidence=Confidence.LIKELY,
                leads=("DDP603", "DDP601"),
                summary=f"collective {number} of group {group or 'default'} is not the same on all ranks",
                line=told,
                stage=Stage.TRAINING,
            )
        ]
    return []


def compress(numbers: Sequence[int]) -> str:
    """Sorted numbers as ranges: `0-6,8`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


INTERPRETER = Interpreter(
    reads=(LogEvent, NcclProgress, Recorded, Stack, StoreWait), gives=(Suspicion,), interpret=interpret
)
