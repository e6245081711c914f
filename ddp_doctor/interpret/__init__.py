"""Pure: raw facts in, their meaning out, as further facts."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module

from ddp_doctor.model import Fact, Facts


def interpret(facts: Facts, others: Sequence[Callable[[Facts], Sequence[Fact]]] = ()) -> tuple[Fact, ...]:
    """What every interpreter concludes: the `interpret(facts)` of each module here, then a pack's.

    Each sees the raw facts only, so their order means nothing.
    """
    meanings: list[Fact] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if not module.ispkg:
            meanings += import_module(f"{__name__}.{module.name}").interpret(facts)
    for other in others:
        meanings += other(facts)
    return tuple(meanings)
