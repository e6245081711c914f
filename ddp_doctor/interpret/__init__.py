"""Pure: raw facts in, their meaning out, as further facts."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module

import msgspec

from ddp_doctor.model import Fact, Facts


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of some kinds to facts of others. Each sees the raw facts only, so their order means nothing."""

    reads: tuple[type[Fact], ...]
    gives: tuple[type[Fact], ...]
    interpret: Callable[[Facts], Sequence[Fact]]


def interpreters() -> tuple[Interpreter, ...]:
    """Ours: the `INTERPRETER` of each module here."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return tuple(import_module(f"{__name__}.{name}").INTERPRETER for name in modules)


def interpret(facts: Facts, all_of_them: Iterable[Interpreter]) -> tuple[Fact, ...]:
    """What every interpreter concludes from these facts."""
    return tuple(fact for each in all_of_them for fact in each.interpret(facts))


def raw_kinds(kinds: Iterable[type[Fact]], all_of_them: Iterable[Interpreter]) -> set[type[Fact]]:
    """These kinds, and those that an interpreter reads to conclude one of them."""
    wanted = set(kinds)
    for each in all_of_them:
        if wanted.intersection(each.gives):
            wanted.update(each.reads)
    return wanted
