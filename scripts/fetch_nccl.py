"""Fetch the libnccl of given versions for the tests that run it: `python scripts/fetch_nccl.py [VERSION...]`.

They go to `$DDP_DOCTOR_TEST_NCCL` or `~/.cache/ddp-doctor/nccl`, 250 to 450 MB each, from the `nvidia-nccl-cu12` wheels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSIONS = ("2.18.3", "2.21.5", "2.27.5", "2.30.7", "2.32.3")
MEMBER = "nvidia/nccl/lib/libnccl.so.2"


def fetch(version: str, folder: Path) -> None:
    """Put that version's libnccl.so.2 into the folder, unless it is there."""
    place = folder / version
    if (place / "libnccl.so.2").exists():
        return
    with tempfile.TemporaryDirectory() as download:
        requirement = f"nvidia-nccl-cu12=={version}"
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", download, requirement]
        subprocess.run(pip, check=True)
        (wheel,) = Path(download).glob("*.whl")
        place.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            unfinished = place / "unfinished"
            unfinished.write_bytes(archive.read(MEMBER))
            unfinished.rename(place / "libnccl.so.2")
    print(place / "libnccl.so.2")


if __name__ == "__main__":
    target = Path(os.environ.get("DDP_DOCTOR_TEST_NCCL") or Path.home() / ".cache" / "ddp-doctor" / "nccl")
    for wanted in sys.argv[1:] or VERSIONS:
        fetch(wanted, target)
