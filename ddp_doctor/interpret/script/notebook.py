"""A notebook as one script: its code cells in order, and the way back from a line of it to a cell."""

from __future__ import annotations

import ast
import bisect
import json
import re
import warnings
from typing import Any

import msgspec

from ddp_doctor.facts.script import Place, ScriptFact

_COMMAND = re.compile(r"^(\s*)(?:[%!]|\?)|\?\s*$")
_ASSIGNED = re.compile(r"^(\s*[\w, ]+=)\s*[%!].*$")
_PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun|python3?)\b")


class Notebook(msgspec.Struct, frozen=True, kw_only=True):
    """The code of a notebook; `starts` are the lines, from 1, at which the cells of those numbers begin."""

    path: str
    text: str
    starts: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    """The number of each code cell, from 1, all kinds of cells counted."""

    def place(self, line: int) -> tuple[str, int]:
        """The cell a line stands in, as a path, and its line within."""
        index = bisect.bisect_right(self.starts, line) - 1
        return f"{self.path} cell {self.cells[index]}", line - self.starts[index] + 1

    def fact(self, fact: ScriptFact) -> ScriptFact:
        """What a line shows, at its place in the notebook; without a diff, which no notebook takes."""
        changed: dict[str, Any] = {}
        for name in fact.__struct_fields__:
            value = getattr(fact, name)
            if isinstance(value, Place) and value.path == self.path:
                path, line = self.place(value.line)
                changed[name] = msgspec.structs.replace(value, path=path, line=line)
            elif name.endswith("rewrite"):
                changed[name] = None
        return msgspec.structs.replace(fact, **changed)


def read_notebook(path: str, content: bytes) -> Notebook:
    """The code cells of a notebook; raises ValueError with the reason where it holds none that can be read."""
    try:
        told = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply to be read") from error
    except ValueError as error:
        raise ValueError(f"it is no notebook: {error}") from error
    cells = told.get("cells") if isinstance(told, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it is no notebook of version 4: it has no list of cells")
    language = _language(told)
    if language not in ("", "python", "ipython"):
        raise ValueError(f"its language is {language}, not Python")
    pieces: list[str] = []
    starts: list[int] = []
    numbers: list[int] = []
    line = 1
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        piece = _python(source if isinstance(source, str) else "".join(map(str, source)))
        pieces.append(piece)
        starts.append(line)
        numbers.append(number)
        line += piece.count("\n") + 1
    if not pieces:
        raise ValueError("it has no code cell")
    return Notebook(path=path, text="\n".join(pieces) + "\n", starts=tuple(starts), cells=tuple(numbers))


def _language(told: dict[str, Any]) -> str:
    metadata = told.get("metadata")
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    return str(info.get("name", "")).lower() if isinstance(info, dict) else ""


def _python(code: str) -> str:
    """A cell without its commands to the notebook, with as many lines: only what Python itself refuses is taken away."""
    lines = code.rstrip("\n").split("\n")
    start = code.lstrip()
    if start.startswith("%%") and not _PYTHON_CELL.match(start):
        return "\n" * (len(lines) - 1)
    for _ in lines:
        number = _refused(lines)
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        without = _without_command(line)
        if without == line:
            break
        lines[number - 1] = without
    return "\n".join(lines)


def _without_command(line: str) -> str:
    if assigned := _ASSIGNED.match(line):
        return f"{assigned[1]} None"
    if command := _COMMAND.search(line):
        return f"{command[1] or ''}pass"
    return line


def _refused(lines: list[str]) -> int:
    """The line at which Python ceases to understand a cell; 0 where it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            return error.lineno or 0
        except (ValueError, RecursionError, MemoryError):
            return 0
    return 0
