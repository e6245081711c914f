"""How ranks that met before init disagree: who says what, who is in the minority, and whether they are surely one job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.job import minority, numbers
from ddp_doctor.model import Confidence, Evidence, Facts

MOST_SHOWN = 8


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """Values that ought to be one. `odd` are the ranks in the minority; all of them where none is the rule."""

    values: dict[str, tuple[Attendee, ...]]
    odd: tuple[Attendee, ...]

    def words(self) -> str:
        """`ranks 0-2: 4; rank 3: 8`, the most common first."""
        groups = sorted(self.values.items(), key=lambda item: -len(item[1]))
        return "; ".join(f"{whose(each)}: {value or 'not set'}" for value, each in groups[:MOST_SHOWN])

    def evidence(self, label: str) -> list[Evidence]:
        """One rank of each value, the odd ones first."""
        groups = sorted(self.values.items(), key=lambda item: len(item[1]))
        return [
            each[0].evidence(f"{label}{value or 'not set'}: {each[0].text()}") for value, each in groups[:MOST_SHOWN]
        ]

    @property
    def ranks(self) -> list[int]:
        """The numbers of the odd ones."""
        return sorted({each.rank for each in self.odd if each.rank is not None})


def disagreement(attendees: Sequence[Attendee], value: Callable[[Attendee], str]) -> Disagreement | None:
    """How these ranks disagree about something; None where they agree."""
    groups: dict[str, list[Attendee]] = defaultdict(list)
    for each in attendees:
        groups[value(each)].append(each)
    if len(groups) < 2:
        return None
    odd = minority(attendees, value) or attendees
    return Disagreement(values={name: tuple(each) for name, each in groups.items()}, odd=tuple(odd))


def met(facts: Facts) -> tuple[Attendee, ...]:
    """The ranks that came with a number of their own."""
    return tuple(each for each in facts[Attendee] if each.rank is not None)


def whose(attendees: Sequence[Attendee]) -> str:
    """These ranks in words."""
    return numbers(each.rank for each in attendees if each.rank is not None)


def confidence(facts: Facts, attendees: Sequence[Attendee]) -> Confidence:
    """Certain where one launcher started them, they go to one store, or together they are exactly one world.

    What merely shares a shell may be two jobs.
    """
    attendance = facts.first(Attendance)
    ranks = [each.rank for each in attendees]
    one_store = len({each.endpoint for each in attendees}) == 1
    one_world = sorted(each for each in ranks if each is not None) == list(range(attendees[0].world_size or 0))
    return (
        Confidence.CERTAIN
        if (attendance is not None and attendance.sure) or one_store or one_world
        else Confidence.LIKELY
    )
