"""Settings from `ddp-doctor.toml` or `[tool.ddp-doctor]`; flags and environment variables beat them."""

from __future__ import annotations

import difflib
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE = "ddp-doctor.toml"
MOST_BYTES = 4 << 20
Value = Literal["true or false", "a number", "a whole number", "a text", "a list of texts"]
"""What an option takes, in words for a person."""


class ConfigError(Exception):
    """A settings file that cannot be read or that holds a key nobody knows."""


def find(start: Path) -> Path | None:
    """The settings file that applies in a directory: its own, or the nearest pyproject.toml with our table above it.

    One of our own name applies even where it cannot be read, so that `read` says so. Raises ConfigError.
    """
    for folder in (start, *start.parents):
        if os.path.lexists(folder / OWN_FILE):
            return folder / OWN_FILE
        pyproject = folder / "pyproject.toml"
        if os.path.isfile(pyproject):  # noqa: PTH113 - Path.is_file raises where a folder above may not be searched
            return pyproject if re.search(rb"\[tool[\s.\]].*ddp-doctor", _content(pyproject), re.DOTALL) else None
    return None


def read(path: Path, known: Mapping[str, Value]) -> dict[str, Any]:
    """The settings in a file, by option name with dashes; `known` says what each option takes. Raises ConfigError."""
    try:
        table: Any = tomllib.loads(_content(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: its values are nested too deeply") from error
    where = ""
    if path.name == "pyproject.toml":
        for name in ("tool", "ddp-doctor"):
            table = table.get(name, {})
            where = f"{where}.{name}" if where else name
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: {where} must be a table, not {_shown(table)}")
    names = sorted(known)
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(names)}"
            raise ConfigError(f"{path}: unknown key {key!r}{hint}")
        _check(path, key, value, known[key])
    settings: dict[str, Any] = table
    return settings


def _check(path: Path, key: str, value: Any, takes: Value) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = number and isinstance(value, int)
    entries = list(value.values()) if isinstance(value, dict) and key == "ignore" else value
    texts = isinstance(entries, list) and all(isinstance(each, str) for each in entries)
    fits = {
        "true or false": isinstance(value, bool),
        "a number": number,
        "a whole number": whole,
        "a text": isinstance(value, str),
        "a list of texts": texts or isinstance(value, str),
    }
    if not fits[takes]:
        wanted = 'a list of texts, or a table of id = "reason"' if key == "ignore" else takes
        raise ConfigError(f"{path}: {key} must be {wanted}, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _content(path: Path) -> bytes:
    """The bytes of a regular file of bearable size; a pipe or device could keep its reader for ever."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ConfigError(
                f"cannot read {path}: {'it is a folder' if stat.S_ISDIR(mode) else 'it is no regular file'}"
            )
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        dangling = path.is_symlink() and not path.exists()
        raise ConfigError(f"cannot read {path}: {'it is a link to nothing' if dangling else error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise ConfigError(f"cannot read {path}: it is larger than {MOST_BYTES >> 20} MiB")
    return content
