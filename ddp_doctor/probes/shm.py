"""/dev/shm: how big, how full, whose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.host import ShmSpace
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

FOLDER = "/dev/shm"


def take(host: Host, facts: Facts) -> Iterable[Observation]:
    """Yield the one ShmSpace, or its absence where the file system does not answer."""
    answer = host.ask("shm_space", {"path": FOLDER})
    heard: dict[str, Any] = {}
    for message in answer.messages:
        heard.update(message)
    if "size" not in heard and "error" not in heard:
        yield Absent(
            kind=ShmSpace.kind(),
            about=Subject(host=host.name),
            status="absent" if answer.status == "ok" else answer.status,
            reason=f"{FOLDER}: {answer.reason}",
            how_to_get=f"df {FOLDER}",
        )
        return
    leftovers = heard.pop("leftovers", None)
    yield ShmSpace(
        subject=Subject(host=host.name),
        source=FOLDER,
        path=FOLDER,
        leftovers=None if leftovers is None else tuple(leftovers),
        **heard,
    )


PROBES = (Probe(name="shm", gives=(ShmSpace,), take=take),)
