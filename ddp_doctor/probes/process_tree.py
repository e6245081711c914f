"""The processes above this one: who started it, and with which launch variables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.launch import Ancestor
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes.variables import is_examined

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
SYSTEM_STARTERS = ("systemd", "init", "runit", "openrc-init", "dinit", "s6-svscan")


def take(host: Host, facts: Facts) -> Iterable[Observation]:
    """Yield this process and each one above it, nearest first."""
    names = sorted(filter(is_examined, host.environ))
    answer = host.ask("process_tree", {"pid": os.getpid(), "names": names})
    seen: dict[int, dict[str, Any]] = {}
    for message in answer.messages:
        if "pid" in message:
            seen.setdefault(message["pid"], {}).update(message)
    if not seen:
        yield Absent(
            kind=Ancestor.kind(),
            about=Subject(host=host.name),
            status="absent" if answer.status == "ok" else answer.status,
            reason=f"/proc shows no parent processes: {answer.reason or 'not readable'}",
            how_to_get="ps -o pid,ppid,args --forest",
        )
        return
    top = seen[list(seen)[-1]]
    contained = not _in_first_namespace() or top["pid"] != 1 or top["command"] not in SYSTEM_STARTERS
    for depth, (pid, message) in enumerate(seen.items()):
        variables = message.get("variables")
        yield Ancestor(
            subject=Subject(host=host.name),
            source=f"/proc/{pid}",
            depth=depth,
            pid=pid,
            command=message["command"],
            arguments=tuple(message.get("arguments", ())),
            variables=None if variables is None else tuple(variables),
            contained=contained,
        )


def _in_first_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == INITIAL_PID_NAMESPACE
    except OSError:
        return False


PROBES = (Probe(name="process_tree", gives=(Ancestor,), take=take),)
