"""Who is here, who is missing, and when there is nothing left to wait for. Pure: time is handed in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.meeting.messages import Key

MOST_NAMED = 64
QUIET_SECONDS = 0.5
"""Nobody new for so long, with as many here as there should be, ends the wait."""
QUIET_IN_DISPUTE = 5.0
"""The same where ranks already contradict each other, and some are not here yet."""
QUIET_BY_HAND = 8.0
"""The same where ranks that merely share a shell name different stores: they may be two jobs, started side by side."""


class Roll:
    """The ranks that came, by thread. `sure` says that one launcher started them all."""

    def __init__(self, sure: bool) -> None:
        self.sure = sure
        self._here: dict[Key, Attendee] = {}
        self._last_came = 0.0
        self._entered: tuple[Attendee, ...] | None = None
        """Everybody in order, until somebody comes or goes: it is asked for many times a second, of thousands."""

    def came(self, attendee: Attendee, now: float) -> None:
        """Enter a rank, or enter it again after its connection was lost."""
        if attendee.key not in self._here or self._here[attendee.key].gone:
            self._last_came = now
        self._here[attendee.key] = attendee
        self._entered = None

    def went(self, key: Key, how: str, stayed_s: float) -> None:
        """Mark a rank as gone: `ended` with its process, `left` otherwise."""
        if key in self._here:
            changes = {"gone": how, "stayed_s": round(stayed_s, 2)}
            self._here[key] = msgspec.structs.replace(self._here[key], **changes)
            self._entered = None

    def forget(self, attendees: Sequence[Attendee]) -> None:
        """Strike out those who have had their verdict."""
        for attendee in attendees:
            self._here.pop(attendee.key, None)
        self._entered = None

    def __len__(self) -> int:
        return len(self._here)

    @property
    def entered(self) -> tuple[Attendee, ...]:
        """Everybody who came, by rank."""
        if self._entered is None:
            by_rank = sorted(
                self._here.items(), key=lambda each: (each[1].rank is None, each[1].rank or 0, str(each[0]))
            )
            self._entered = tuple(attendee for _, attendee in by_rank)
        return self._entered

    @property
    def expected(self) -> int:
        """The greatest world size that anybody names."""
        return max((each.world_size or 1 for each in self._here.values()), default=0)

    def missing(self) -> tuple[int, ...]:
        """Ranks below the greatest world size that nobody here is."""
        present = {each.rank for each in self._here.values() if not each.gone}
        return tuple(rank for rank in range(self.expected) if rank not in present)

    def party(self, over: bool = False) -> tuple[Attendee, ...]:
        """Those to be judged together: everybody, except where ranks that merely share a shell go to different stores.

        Then it is a job that is complete by itself; once the time is `over`, those who go to one store.
        """
        everybody = self.entered
        if self.sure or len({each.endpoint for each in everybody}) == 1:
            return everybody
        groups = self._by_endpoint()
        whole = next((group for group in groups.values() if complete(group)), None)
        if whole is not None:
            return tuple(whole)
        return tuple(next(iter(groups.values()))) if over and not complete(everybody) else everybody

    def settled(self, now: float) -> bool:
        """Whether waiting longer would tell nothing more."""
        everybody = self.entered
        if not everybody:
            return False
        quiet = now - self._last_came
        party = self.party()
        apart = len({each.endpoint for each in party}) > 1
        if complete(party) and not apart:
            return True
        patience = QUIET_BY_HAND if apart and not self.sure else QUIET_SECONDS
        if len(everybody) >= self.expected:
            # as many as there should be, and yet they do not fit; or some have ended
            return quiet >= patience
        return _disputed(everybody) and quiet >= max(QUIET_IN_DISPUTE, patience) and (self.sure or not apart)

    def attendance(self, party: Sequence[Attendee], waited_s: float, by: str, lost: str) -> Attendance:
        """The outcome as a fact."""
        size = max((each.world_size or 1 for each in party), default=1)
        present = {each.rank for each in party if each.rank is not None and not each.gone}
        gone = {each.rank for each in party if each.rank is not None and each.gone == "ended"} - present
        stopped = {
            each.rank for each in party if each.rank is not None and each.gone in ("stopped", "silent")
        } - present
        return msgspec.convert(
            {
                "kind": Attendance.kind(),
                "source": "the ranks before init",
                "world_size": size,
                "present": sorted(present),
                "missing": [rank for rank in range(size) if rank not in present | gone | stopped],
                "gone": sorted(gone),
                "stopped": sorted(stopped),
                "waited_s": round(waited_s, 2),
                "sure": self.sure or len({each.subject.process for each in party}) == 1,
                "by": by,
                "lost": lost,
            },
            Attendance,
        )

    def _by_endpoint(self) -> dict[tuple[str, str], list[Attendee]]:
        groups: dict[tuple[str, str], list[Attendee]] = defaultdict(list)
        for each in self._here.values():
            groups[each.endpoint].append(each)
        return groups


def complete(group: Sequence[Attendee]) -> bool:
    """Whether they are the ranks of one world, each once and each in a process of its own."""
    if len(group) != (group[0].world_size or 1):
        return False
    sizes = {each.world_size for each in group}
    if len(sizes) != 1 or any(each.gone for each in group):
        return False
    size = sizes.pop() or 1
    ranks = [each.rank for each in group]
    processes = {each.subject.process for each in group}
    return len(processes) == len(group) == size and set(ranks) == set(range(size))


def _disputed(everybody: Sequence[Attendee]) -> bool:
    """Whether two of them contradict each other, whoever is still to come."""
    taken = Counter(each.rank for each in everybody if not each.gone)
    return (
        len({each.world_size for each in everybody}) > 1
        or len({each.port for each in everybody}) > 1
        or len({each.subject.process for each in everybody}) < len(everybody)
        or any(number > 1 for number in taken.values())
    )
