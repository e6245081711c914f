"""Facts of tried paths, as two or more hosts would bring them."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.names import Interface
from ddp_doctor.facts.paths import PathListener, PathTry
from ddp_doctor.model import Fact, Subject

ADDRESS = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


def hosts(*names: str) -> list[Fact]:
    """Their ranks, their interface, and a listener with room on each."""
    found: list[Fact] = []
    for rank, name in enumerate(names):
        subject = Subject(host=name)
        found.append(Attendee(subject=Subject(host=name, rank=rank), rank=rank))
        found.append(
            Interface(subject=subject, name="eth0", index=2, addresses=(ADDRESS[name],), up=True, running=True)
        )
        found.append(listener(name))
    return found


def listener(host: str, **more: Any) -> PathListener:
    """A listener of that host."""
    fields: dict[str, Any] = {
        "address": ADDRESS[host], "port": 40000, "uses": ("host", "gloo"), "interface": "eth0", "backlog": 1024,
    }  # fmt: skip
    return PathListener(subject=Subject(host=host), **{**fields, **more})


def tried(source: str, target: str, outcome: Any = "reached", **more: Any) -> PathTry:
    """One connection between them, by default one that came through."""
    fields: dict[str, Any] = {"address": ADDRESS[target], "port": 40000, "uses": ("host", "gloo"), "outcome": outcome}
    if outcome == "reached":
        fields |= {"local": ADDRESS[source], "seen_as": ADDRESS[source]}
    return PathTry(subject=Subject(host=source), to=target, **{**fields, **more})
