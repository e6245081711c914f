"""One shared budget of seconds, so that no sum of small waits exceeds what the caller allowed."""

from __future__ import annotations

import time


class Deadline:
    """A moment in monotonic time; `within(t)` is the earlier of `t` seconds from now and that moment."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float | None) -> Deadline:
        """A deadline `seconds` from now that does not reach past this one."""
        left = self.remaining()
        return Deadline(left if seconds is None else min(seconds, left))

    def __bool__(self) -> bool:
        return self.remaining() > 0
