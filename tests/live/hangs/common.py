"""What the scripts here share: the moment before the hang is marked by a file in $READY."""

import os
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
    number = 0
    while True:
        number = sum(index * number for index in range(20000)) % 1000003
