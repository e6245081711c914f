"""Who writes to a pipe that many ranks share: one at a time, so that no report stands in the middle of another."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

MOST_SECONDS = 10.0
"""For so long a turn is waited for: who has it may be stopped, or its reader may not read."""


@contextmanager
def turn(stream: TextIO | int, seconds: float = MOST_SECONDS) -> Iterator[None]:
    """Hold the pipe behind a stream while writing; anything but a pipe is not waited for."""
    descriptor = _pipe(stream)
    held = descriptor is not None and _taken(descriptor, seconds)
    try:
        yield
    finally:
        if held and descriptor is not None:
            fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _pipe(stream: TextIO | int) -> int | None:
    try:
        descriptor = stream if isinstance(stream, int) else stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):
        return None  # no descriptor behind it, or a closed one


def _taken(descriptor: int, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while True:
        try:
            # a record lock is the process's own, though all ranks inherited one and the same open pipe
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.01)
        except OSError:
            return False  # a kernel or sandbox without such locks
        else:
            return True
