"""A command of which no more is heard than a limit, and for no longer than a deadline."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

import msgspec

GOODBYE_SECONDS = 0.5
BEGINNING_KEPT = 1 << 16
COMPLAINTS_KEPT = 1 << 16
_AT_ONCE = 1 << 18
_LOOK_SECONDS = 0.2
_POLL_SECONDS = 0.01


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What a command wrote. `code` is None where it was killed, `flood` whether that was for what it wrote."""

    said: str
    complaints: str
    code: int | None
    flood: bool = False


def hear(
    argv: Sequence[str],
    end: float,
    most: int,
    *,
    begins: bytes = b"",
    stdin: int = subprocess.DEVNULL,
    over: Callable[[], bool] = lambda: False,
) -> Heard:
    """Run until it has ended, has written `most` bytes, the monotonic time `end` has come, or `over` says so.

    Of stdout the beginning is kept, and what follows `begins` once that was there; of stderr the end. Raises OSError
    where the command cannot be started.
    """
    process = subprocess.Popen(
        argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    said, complaints, count, begun = bytearray(), bytearray(), 0, False
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, said)
        selector.register(process.stderr, selectors.EVENT_READ, complaints)
        while selector.get_map() and count <= most and (left := end - time.monotonic()) > 0 and not over():
            for key, _ in selector.select(min(left, _LOOK_SECONDS)):
                data = os.read(key.fd, _AT_ONCE)
                count += len(data)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
            del complaints[:-COMPLAINTS_KEPT]
            begun = begun or begins in said
            if not begun and len(said) > 2 * BEGINNING_KEPT:
                del said[BEGINNING_KEPT : -len(begins)]
        whole = not selector.get_map()
    flood = count > most
    while whole and not flood and process.poll() is None and time.monotonic() < end and not over():
        time.sleep(_POLL_SECONDS)
    code = process.poll() if whole and not flood else None
    if code is None:
        _kill(process)
    return Heard(
        said="" if flood else said.decode("utf-8", "replace"),
        complaints=complaints.decode("utf-8", "replace"),
        code=code,
        flood=flood,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it so that it can end its other half, and soon in any case."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GOODBYE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
