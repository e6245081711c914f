"""Work that takes a while, beside the loop that keeps the others informed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """A function that runs in a thread of its own; `result` is None until it has returned, and where it raised."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self.result: T | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"ddp-doctor {name}", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has returned or raised."""
        return not self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for its end, for so long at most."""
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:
            self.error = error
