"""A temporary folder of a test run that does not outlive it by more than the next one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def own_folder(kind: str) -> Path:
    """A folder that goes when this process ends; what processes that were killed have left goes now."""
    for left in Path(tempfile.gettempdir()).glob(f"ddp-doctor-{kind}-*-*"):
        pid = left.name.removeprefix(f"ddp-doctor-{kind}-").partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"ddp-doctor-{kind}-{os.getpid()}-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a fork that ends
        shutil.rmtree(folder, ignore_errors=True)
