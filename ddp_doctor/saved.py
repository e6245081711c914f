"""Facts as lines of JSON and back. A kind that this version does not know stays an UnknownFact, and is written as it was."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import msgspec

import ddp_doctor.facts
from ddp_doctor.model import Absent, Fact, Facts, UnknownFact

SCHEMA = "ddp-doctor/facts/1"
BEGINS = f'{{"schema":"{SCHEMA}"'
"""How such lines begin."""
MOST_LINES = 2_000_000


def kinds() -> dict[str, type[Fact]]:
    """Every kind of fact there is, by name."""
    for module in pkgutil.iter_modules(ddp_doctor.facts.__path__):
        import_module(f"{ddp_doctor.facts.__name__}.{module.name}")
    found: dict[str, type[Fact]] = {}
    waiting: list[type[Fact]] = [Fact]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found.setdefault(kind.kind(), kind)
    return found


def encoded(fact: Fact) -> dict[str, Any]:
    """A fact as a table; `kind` tells which."""
    if isinstance(fact, UnknownFact):
        return {"kind": fact.of_kind, **fact.raw}
    table: dict[str, Any] = msgspec.to_builtins(fact)
    return table


def decoded(table: dict[str, Any], known: dict[str, type[Fact]]) -> Fact:
    """The fact of a table; an UnknownFact where the kind, or a field of it, is not known here."""
    kind = known.get(str(table.get("kind")))
    if kind is not None:
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError:
            pass
    raw = {name: value for name, value in table.items() if name != "kind"}
    return UnknownFact(of_kind=str(table.get("kind", "")), raw=raw)


def to_tables(facts: Facts) -> list[dict[str, Any]]:
    """A heading, then everything that is known and everything that could not be had."""
    return [
        {"schema": SCHEMA, "looked_for": sorted(facts.looked_for)},
        *(encoded(fact) for fact in facts),
        *({"absent": msgspec.to_builtins(absent)} for absent in facts.absents),
    ]


def to_lines(tables: Iterable[dict[str, Any]]) -> str:
    """The tables, one a line."""
    return "".join(json.dumps(table, ensure_ascii=False, separators=(",", ":")) + "\n" for table in tables)


def looks_like_facts(text: str) -> bool:
    """Whether a text begins with the heading of such lines."""
    return text.lstrip()[:200].startswith(BEGINS)


def looks_like_manifest(text: str) -> bool:
    """Whether this is the manifest of a bundle, which says nothing about a job."""
    return '"schema": "ddp-doctor/bundle/' in text[:200]


def from_lines(text: str) -> Facts:
    """The facts of such lines; raises ValueError for a line that is no table."""
    return from_tables(_tables(text))


def from_tables(tables: Iterable[tuple[int, dict[str, Any]]]) -> Facts:
    """The facts of numbered tables; raises ValueError for an absence that is none."""
    known = kinds()
    facts: list[Fact] = []
    absents: list[Absent] = []
    looked_for: list[str] = []
    for number, table in tables:
        if table.get("schema") == SCHEMA:
            looked_for += [kind for kind in table.get("looked_for", ()) if isinstance(kind, str)]
        elif "kind" not in table and "absent" in table:
            try:
                absents.append(msgspec.convert(table["absent"], Absent))
            except msgspec.ValidationError as error:
                raise ValueError(f"line {number}: {error}") from None
        else:
            facts.append(decoded(table, known))
    return Facts(facts, absents, looked_for)


def _tables(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n")[:MOST_LINES], 1):
        if not line.strip():
            continue
        try:
            table = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from None
        if not isinstance(table, dict):
            raise ValueError(f"line {number}: no table")
        yield number, table
