"""What a meeting before init shows of DDP118: settings that all ranks must share and do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.launch import Variable
from ddp_doctor.model import Confidence, Facts, Fix, Severity
from ddp_doctor_checks.disagreement import Disagreement, disagreement, met
from ddp_doctor_checks.launch.rank_config_mismatch_live import STEPS, meant

SHARED = ("NCCL_*", "GLOO_*")
OWN_TO_A_NODE = (
    # names of this machine's devices, files and addresses, and what only changes what is written
    "*_IFNAME", "*_HCA", "*_DEBUG*", "*_FILE", "*_LOG*", "*HOSTID*", "*_DUMP*", "NCCL_GRAPH_*", "NCCL_TOPO_*", "*_PATH",
    "NCCL_IB_GID_INDEX", "NCCL_CUMEM_*", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_COMM_ID", "NCCL_RAS_*", "*_DEVICE_*",
)  # fmt: skip


INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RankConfigMismatch.finding`: one set per setting that takes ranks different ways, one for the rest."""
    attendees = met(facts)
    if len(attendees) < 2:
        return
    for name, (default, why) in STEPS.items():
        found = disagreement(attendees, lambda each: meant(name, each.variables.get(name, default)))  # noqa: B023
        if found is not None:
            yield _arguments(name, found, why, Severity.ERROR)
    yield from _interfaces(attendees)
    files = _from_files(facts)
    names = {name for each in attendees for name in each.variables} | {name for _, name in files}
    for name in sorted(names):
        shared = any(fnmatchcase(name, each) for each in SHARED)
        if shared and not any(fnmatchcase(name, each) for each in OWN_TO_A_NODE):
            found = disagreement(
                attendees,
                lambda each: each.variables.get(name, files.get((each.subject.host, name), "")),  # noqa: B023
            )
            if found is not None:
                why = "ranks that choose algorithm, protocol or transport differently wait for each other"
                yield _arguments(name, found, why, Severity.WARNING)


def _interfaces(attendees: Sequence[Attendee]) -> Iterator[dict[str, Any]]:
    """Interfaces have other names on another host, and one name on one."""
    for machine in dict.fromkeys(each.machine for each in attendees if each.machine):
        here = [each for each in attendees if each.machine == machine]
        for name in INTERFACES:
            found = disagreement(here, lambda each: each.variables.get(name, ""))  # noqa: B023
            if found is not None:
                why = (
                    "ranks of one host that use different interfaces tell the others addresses that may not reach them"
                )
                yield _arguments(name, found, why, Severity.WARNING)


def _from_files(facts: Facts) -> dict[tuple[str, str], str]:
    """What NCCL's conf files of each host set: (host, name) -> value."""
    return {
        (each.subject.host, each.name): each.value
        for each in facts[Variable]
        if ":" in each.source and each.in_effect and each.subject.rank is None
    }


def _arguments(name: str, found: Disagreement, why: str, severity: Severity) -> dict[str, Any]:
    return {
        "summary": f"{name} is not the same on all ranks: {found.words()}",
        "because": why,
        "evidence": found.evidence(f"{name}="),
        "fixes": [
            Fix(
                title="set it on every rank or on none, in the environment and in /etc/nccl.conf",
                commands=(f"unset {name}",),
            )
        ],
        "severity": severity,
        "confidence": Confidence.LIKELY,
        "ranks": found.ranks,
    }
