"""Locks of torch's extension builder, in the folder where the examined job would build."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.host import ExtensionCache, ExtensionLock
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject


def take(host: Host, facts: Facts) -> Iterable[Observation]:
    """Yield the one ExtensionCache where that folder exists."""
    home = host.environ.get("XDG_CACHE_HOME") or f"{host.environ.get('HOME', '')}/.cache"
    path = host.environ.get("TORCH_EXTENSIONS_DIR") or f"{home}/torch_extensions"
    answer = host.ask("extension_locks", {"path": path})
    about = Subject(host=host.name)
    if answer.status != "ok":
        yield Absent(
            kind=ExtensionCache.kind(),
            about=about,
            status=answer.status,
            reason=f"{path}: {answer.reason}",
            how_to_get=f"ls -l {path}/*/*/lock",
        )
    elif answer.messages:
        if not answer.first["complete"]:
            yield Absent(
                kind=ExtensionCache.kind(),
                about=about,
                status="denied",
                reason="not every process could be asked whether it builds an extension",
                how_to_get=f"fuser {path}/*/*/lock",
            )
        locks = tuple(msgspec.convert(lock, ExtensionLock) for lock in answer.first["locks"])
        yield ExtensionCache(
            subject=about,
            source=path,
            path=path,
            locks=locks,
            complete=answer.first["complete"],
            file_system=answer.first["file_system"],
        )


PROBES = (Probe(name="extension_locks", gives=(ExtensionCache,), take=take),)
