"""Pure: raw facts in, their meaning out, as further facts."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module

import msgspec

from ddp_doctor.model import Absent, Fact, Facts


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of some kinds to facts of others. Each sees the raw facts only, so their order means nothing."""

    reads: tuple[type[Fact], ...]
    gives: tuple[type[Fact], ...]
    interpret: Callable[[Facts], Sequence[Fact]]


def interpreters() -> tuple[Interpreter, ...]:
    """Ours: the `INTERPRETER` of each module here that has one."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(module.INTERPRETER for module in modules if hasattr(module, "INTERPRETER"))


def interpret(facts: Facts, all_of_them: Iterable[Interpreter]) -> Facts:
    """These facts and what every interpreter concludes from them; what a missing fact would have told is missing too."""
    everybody = tuple(all_of_them)
    meanings: list[Fact] = []
    missing: list[Absent] = []
    for each in everybody:
        try:
            meanings += each.interpret(facts)
        except Exception as error:  # a defect of one must not cost the rest of the report
            why = f"what it means could not be told: {type(error).__name__}: {error}"
            missing += [Absent(kind=kind.kind(), status="crashed", reason=why) for kind in each.gives]
        missing += [
            msgspec.structs.replace(absent, kind=kind.kind())
            for absent in facts.absents
            if any(absent.kind == read.kind() for read in each.reads)
            for kind in each.gives
        ]
    looked_for = [
        kind.kind()
        for each in everybody
        if any(read.kind() in facts.looked_for for read in each.reads)
        for kind in each.gives
    ]
    return facts.plus(meanings, missing, looked_for)


def raw_kinds(kinds: Iterable[type[Fact]], all_of_them: Iterable[Interpreter]) -> set[type[Fact]]:
    """These kinds, and those that an interpreter reads to conclude one of them."""
    wanted = set(kinds)
    for each in all_of_them:
        if wanted.intersection(each.gives):
            wanted.update(each.reads)
    return wanted
