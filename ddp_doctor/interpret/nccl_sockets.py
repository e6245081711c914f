"""The interfaces NCCL's socket transport uses, by the rule of its interface search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import Interface, NcclInterface, NcclSockets
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts

RUNNING_MATTERS_SINCE = (2, 28)


def interpret(facts: Facts) -> list[Fact]:
    """One fact per host; where libnccl answered, with the version and the settings that it saw (conf files included)."""
    found: list[Fact] = []
    for host in dict.fromkeys(interface.subject.host for interface in facts[Interface]):
        here = facts.on(host)
        asked = here.first(NcclInterface)
        settings = {each.name: each.value for each in here[Variable] if each.in_effect}
        ifname = asked.ifname if asked else settings.get("NCCL_SOCKET_IFNAME")
        family = asked.socket_family if asked else settings.get("NCCL_SOCKET_FAMILY")
        version = asked.version if asked else ""
        found.append(
            NcclSockets(
                subject=here[Interface][0].subject,
                source=f"rule of NCCL {version}".rstrip(),
                interfaces=sockets_of(here[Interface], ifname, family, version),
                version=version,
                ifname=ifname,
            )
        )
    return found


def version_tuple(version: str) -> tuple[int, ...]:
    """`2.27.5` as numbers; empty where it is not known."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def sockets_of(
    interfaces: Sequence[Interface], ifname: str | None, family: str | None, version: str
) -> tuple[str, ...]:
    """Names in the order NCCL finds them: IPv4 of all interfaces by ifindex, then IPv6; each interface once.

    An IFNAME of one character counts as not set. A set one has no fall-back and replaces the default exclusions.
    """
    recent = version_tuple(version) >= RUNNING_MATTERS_SINCE
    usable = [each for each in interfaces if each.running or not recent]
    names = [each.name for each in usable if family != "AF_INET6" and _v4(each)]
    names += [each.name for each in usable if family != "AF_INET" and any(address != "::1" for address in _v6(each))]
    names = list(dict.fromkeys(names))
    if ifname is not None and len(ifname) > 1:
        matches = _pattern(ifname)
        return tuple(name for name in names if matches(name))
    excluded = "^docker,lo,virbr" if recent else "^docker,lo"
    for pattern in ("ib", excluded, "docker", "lo", "virbr"):
        matches = _pattern(pattern)
        chosen = tuple(name for name in names if matches(name))
        if chosen:
            return chosen
    return ()


def _pattern(ifname: str) -> Callable[[str], bool]:
    """NCCL's pattern: a list of prefixes, `=` makes them exact names, `^` before that excludes them."""
    negated = ifname.startswith("^")
    rest = ifname[1:] if negated else ifname
    exact = rest.startswith("=")
    parts = [part.partition(":")[0] for part in (rest[1:] if exact else rest).split(",")]
    parts = [part for part in parts if part]

    def matches(name: str) -> bool:
        hit = any(name == part if exact else name.startswith(part) for part in parts)
        return hit != negated

    return matches


def _v4(interface: Interface) -> list[str]:
    return [address for address in interface.addresses if ":" not in address]


def _v6(interface: Interface) -> list[str]:
    return [address for address in interface.addresses if ":" in address]


INTERPRETER = Interpreter(reads=(Interface, NcclInterface, Variable), gives=(NcclSockets,), interpret=interpret)
