"""Ctrl-C and SIGTERM end an examination early; what it found is still printed, whole."""

from __future__ import annotations

import signal
from types import FrameType

from ddp_doctor.host import Host


def interrupts_end(host: Host) -> Host:
    """From now on the first SIGINT or SIGTERM interrupts this host; a second one ends the process at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        if host.interrupted:
            raise KeyboardInterrupt
        host.interrupt("terminated" if number == signal.SIGTERM else "interrupted")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return host
