"""What the tried paths show of DDP301: an address that NCCL or Gloo will tell the others, and where they do not find it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.names import Interface, PeerInterface, UnreachableInterface
from ddp_doctor.facts.paths import PathTry
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks.network.wrong_interface_fixes import interface_fixes
from ddp_doctor_checks.paths import Broken, Cause, named, of, ranks_on

CAUSES: tuple[Cause, ...] = ("same-address", "other-host", "interface", "no-route")
LIBRARIES = {"nccl": "NCCL", "gloo": "Gloo"}


def from_paths(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `WrongInterface.finding`, one set for each host with such an address."""
    for found in of(facts, *CAUSES):
        first = found.first
        who = " and ".join(LIBRARIES[use] for use in first.uses if use in LIBRARIES)
        whose = f"{who} of {named(found.targets)} will listen on" if who else f"{named(found.targets)} is known by"
        where = f"{first.address} ({found.interface})" if found.interface else first.address
        other = _other(facts, found)
        yield {
            "summary": f"{whose} {where}, {_why(found)}",
            "because": f"{who or 'every rank'} tells the other ranks that address, and they cannot reach it"
            + (f"; {other.to} answers them at {other.address}" if other else ""),
            "evidence": found.evidence() + ([other.evidence()] if other else []),
            "fixes": _fixes(facts, found, who),
            "confidence": Confidence.CERTAIN if found.observed else Confidence.LIKELY,
            "ranks": ranks_on(facts, found.targets),
        }


def untried(facts: Facts, host: str) -> Facts:
    """What is known about a host, without the looks of interfaces whose addresses others have tried: those are known."""
    here = facts.on(host)
    if not here[UnreachableInterface]:
        return here
    tried = {each.address for each in facts[PathTry] if each.to == host}
    known = {each.name for each in here[Interface] for address in each.addresses if address in tried}
    kept = (each for each in here if not (isinstance(each, UnreachableInterface) and each.interface in known))
    return Facts(kept, here.absents, here.looked_for)


def _why(found: Broken) -> str:
    first, sources = found.first, named(found.sources)
    if found.cause == "same-address":
        return (
            f"which {sources} {'has' if len(found.sources) == 1 else 'have'} too: what goes there comes back to oneself"
        )
    if found.cause == "other-host":
        return f"where {first.answered_by or 'something else'} answers {sources}"
    if found.cause == "no-route":
        return f"to which {sources} has no way: {first.error}"
    how = {"dropped": "gets no answer", "refused": "is refused", "unreachable": f"has no way: {first.error}"}
    return f"where {sources} {how.get(first.outcome, first.outcome)}"


def _other(facts: Facts, found: Broken) -> PathTry | None:
    pairs = {(each.subject.host, each.to) for each in found.tries}
    return next(
        (each for each in facts[PathTry] if each.ok and "host" in each.uses and (each.subject.host, each.to) in pairs),
        None,
    )


def _fixes(facts: Facts, found: Broken, who: str) -> list[Fix]:
    here = facts.on(found.targets[0])
    if here.first(PeerInterface) is None:
        command = f"ip route get {found.first.local or 'ADDRESS_OF_' + found.sources[0]}   # on {found.targets[0]}"
        return [Fix(title="see which interface leads to the others", commands=(command,), needs="nothing")]
    return [fix for library in ("NCCL", "Gloo") if library in who or not who for fix in interface_fixes(library, here)]
