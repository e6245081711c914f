"""The packages of this tree as an installation has them: elsewhere, and with bytecode."""

from __future__ import annotations

import compileall
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def installed(folder: Path) -> str:
    """Copy them into a folder; the PYTHONPATH under which they are found there."""
    for source in (ROOT / "ddp_doctor", ROOT / "checks" / "ddp_doctor_checks"):
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder / source.name, quiet=1)
    return os.fspath(folder)
