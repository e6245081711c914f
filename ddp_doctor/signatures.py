"""Signatures of log lines and separators of candidates: data that packs bring as TOML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from ddp_doctor.facts.log import Condition, Sort
from ddp_doctor.model import Confidence, Separator, Stage

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable as Traversable
else:
    from importlib.abc import Traversable as Traversable


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of log line.

    `pattern` is searched in a line (without its prefixes and colours) that holds one of the `anchors`, literals that
    are compared without case. `where` compares two captured numbers, or one with a constant. `sample` must match,
    `near` must not. `versions` says who prints the line. Text in `summary` may quote `{fields}`.
    """

    name: str
    pattern: str
    anchors: tuple[str, ...]
    sample: str
    sort: Sort = "cause"
    leads: tuple[str, ...] = ()
    confidence: Confidence = Confidence.POSSIBLE
    weight: float = 1.0
    summary: str = ""
    where: tuple[str, str, str] | None = None
    when: tuple[Condition, ...] = ()
    stage: str = ""
    versions: str = ""
    near: str = ""

    def compiled(self) -> re.Pattern[str]:
        """The pattern, compiled."""
        return re.compile(self.pattern)

    @property
    def of_library(self) -> bool:
        """Whether it knows a message of NCCL or torch, and not words that a person writes about one."""
        prose = self.sort in ("clue", "ambiguous", "word") and not self.versions
        return not prose or "NCCL INFO" in self.sample or "NCCL WARN" in self.sample

    @property
    def at_stage(self) -> Stage | None:
        """The stage a rank that prints this line has reached."""
        return Stage[self.stage.upper().replace("-", "_")] if self.stage else None

    def holds(self, fields: dict[str, str]) -> bool:
        """Whether the captured numbers compare as `where` wants; a field that is not there or no number does not."""
        if self.where is None:
            return True
        left, operator, right = self.where
        try:
            a = fields[left].count(",") + 1 if operator == "lists-fewer-than" else int(fields[left])
            b = int(fields.get(right, right))
        except (KeyError, ValueError):
            return False
        return {
            "<": a < b,
            "lists-fewer-than": a < b,
            "<=": a <= b,
            ">": a > b,
            ">=": a >= b,
            "==": a == b,
            "!=": a != b,
            "not-multiple-of": b > 0 and a % b != 0,
        }[operator]


class Candidates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A separator as TOML spells it."""

    between: tuple[str, ...]
    title: str
    commands: tuple[str, ...] = ()


def read_signatures(folder: Traversable) -> tuple[Signature, ...]:
    """The `[[signature]]` tables of every TOML file of a folder, by file name; raises ValueError for a bad one."""
    found: list[Signature] = []
    for file in _toml_files(folder):
        found += msgspec.convert(_table(file).get("signature", []), list[Signature])
    return tuple(found)


def read_separators(file: Traversable) -> tuple[Separator, ...]:
    """The `[[separator]]` tables of a TOML file."""
    tables = msgspec.convert(_table(file).get("separator", []), list[Candidates])
    return tuple(Separator(between=table.between, title=table.title, commands=table.commands) for table in tables)


def _toml_files(folder: Traversable) -> Iterable[Traversable]:
    return sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)


def _table(file: Traversable) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file.name}: {error}") from None
    return table
