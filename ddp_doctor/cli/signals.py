"""Ctrl-C and SIGTERM end an examination early; what it found is still printed, whole."""

from __future__ import annotations

import signal
import time
from types import FrameType

from ddp_doctor.host import Host

AGAIN_SECONDS = 1.0
"""Launchers pass on what the terminal has sent already, so that one Ctrl-C arrives twice."""


def interrupts_end(host: Host) -> Host:
    """From now on the first SIGINT or SIGTERM interrupts this host; a second one ends the process at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        if host.interrupted:
            raise KeyboardInterrupt
        host.interrupt(_named(number))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return host


class Ending:
    """Whether this process was told to end, for one that has no host or not yet. `how` is empty until then."""

    def __init__(self) -> None:
        self.how = ""
        self._told_at = 0.0
        self._hosts: list[Host] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def interrupts(self, host: Host) -> None:
        """The examination of this host ends with it."""
        self._hosts.append(host)
        if self.how:
            host.interrupt(self.how)

    def no_more(self) -> None:
        """All is said: what comes now changes neither that nor the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.how and now - self._told_at > AGAIN_SECONDS:
            raise KeyboardInterrupt
        if not self.how:
            self.how, self._told_at = _named(number), now
        for host in self._hosts:
            host.interrupt(self.how)


def _named(number: int) -> str:
    return "terminated" if number == signal.SIGTERM else "interrupted"
