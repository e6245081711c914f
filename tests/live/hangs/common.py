"""What the scripts here share: the moment before the hang is marked by a file in $READY."""

import os
import time
from datetime import timedelta
from pathlib import Path

TIMEOUT = timedelta(seconds=float(os.environ.get("HANG_TIMEOUT", "600")))


def ready() -> None:
    """Say that this process is about to stand where it will hang."""
    folder = os.environ.get("READY")
    if folder:
        Path(folder, str(os.getpid())).touch()


def work_for_ever() -> None:
    """Stands for tokenising or downloading a dataset."""
    work_for(float("inf"))


def work_for(seconds: float) -> None:
    """The same, for so long."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number = sum(index * number for index in range(20000)) % 1000003
