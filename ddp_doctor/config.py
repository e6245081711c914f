"""Settings from `ddp-doctor.toml` or `[tool.ddp-doctor]`; flags and environment variables beat them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE = "ddp-doctor.toml"


class ConfigError(Exception):
    """A settings file that cannot be read or that holds a key nobody knows."""


def find(start: Path) -> Path | None:
    """The settings file that applies in a directory: its own, or the nearest pyproject.toml with our table above it."""
    for folder in (start, *start.parents):
        if (folder / OWN_FILE).is_file():
            return folder / OWN_FILE
        pyproject = folder / "pyproject.toml"
        if pyproject.is_file():
            return pyproject if b"[tool.ddp-doctor" in pyproject.read_bytes() else None
    return None


def read(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """The settings in a file, by option name with dashes. Raises ConfigError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if path.name == "pyproject.toml":
        table = table.get("tool", {}).get("ddp-doctor", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: tool.ddp-doctor is no table")
    names = sorted(known)
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(names)}"
            raise ConfigError(f"{path}: unknown key {key!r}{hint}")
    return table
