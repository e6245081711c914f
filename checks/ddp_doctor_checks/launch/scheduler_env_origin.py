"""Where a left-over variable came in."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_doctor.facts.launch import Ancestor
from ddp_doctor.model import Evidence


def where_they_came_in(name: str, ancestors: Sequence[Ancestor]) -> list[Evidence]:
    """The topmost process above that already had the variable."""
    having = [found for found in ancestors if found.depth > 0 and name in (found.variables or ())]
    return [having[-1].evidence(f"already has {name}: {having[-1].text()}")] if having else []
