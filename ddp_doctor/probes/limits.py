"""What this process may open, start and lock, and how much memory is left, with the cgroups it lives in."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterable, Iterator

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.host import Limit, Memory
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 14, 21, 24
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
CGROUPS = "/sys/fs/cgroup"
V1_UNLIMITED = 1 << 60


def take(host: Host, facts: Facts) -> Iterable[Observation]:
    """Yield the limits of this process and of the ports, then the memory left."""
    about = Subject(host=host.name)
    rights = _capabilities(host)
    nofile = _bounds(resource.RLIMIT_NOFILE)
    yield Limit(subject=about, source="ulimit -n", name="nofile", soft=nofile[0], hard=nofile[1])
    memlock = _bounds(resource.RLIMIT_MEMLOCK)
    yield Limit(
        subject=about,
        source="ulimit -l",
        name="memlock",
        soft=memlock[0],
        hard=memlock[1],
        exempt=CAP_IPC_LOCK in rights,
        needed_by=_rdma_devices(),
    )
    seconds, space = _bounds(resource.RLIMIT_CPU), _bounds(resource.RLIMIT_AS)
    yield Limit(subject=about, source="ulimit -t", name="cpu", soft=seconds[0], hard=seconds[1])
    yield Limit(subject=about, source="ulimit -v", name="as", soft=space[0], hard=space[1])
    yield from _ports(host, about)
    yield from _processes(host, about, rights)
    yield from _memory(host, about)


def _bounds(which: int) -> tuple[int | None, int | None]:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return soft, hard


def _ports(host: Host, about: Subject) -> Iterator[Limit]:
    bounds = (host.kernel(PORT_RANGE) or "").split()
    if len(bounds) != 2:
        return
    first, last = (int(bound) for bound in bounds)
    tables = [host.kernel(f"/proc/net/{name}") or "" for name in ("tcp", "tcp6")]
    taken = {int(port, 16) for table in tables for port in re.findall(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) ", table, re.M)}
    used = sum(first <= port <= last for port in taken)
    yield Limit(subject=about, source=PORT_RANGE, name="ports", soft=last - first + 1, hard=65536, used=used)


def _capabilities(host: Host) -> frozenset[int]:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", host.kernel("/proc/self/status") or "", re.MULTILINE)
    mask = int(found[1], 16) if found else 0
    return frozenset(number for number in range(64) if mask >> number & 1)


def _rdma_devices() -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir("/sys/class/infiniband")))
    except OSError:
        return ()


def _processes(host: Host, about: Subject, rights: frozenset[int]) -> Iterator[Observation]:
    soft, hard = _bounds(resource.RLIMIT_NPROC)
    exempt = os.getuid() == 0 or bool({CAP_SYS_ADMIN, CAP_SYS_RESOURCE} & rights)
    used = None
    groups = [
        Limit(subject=about, source=f"{folder}/pids.max", name="pids", soft=most, hard=most, used=now)
        for folder in _folders(host, "pids")
        for most, now in [[_number(host.kernel(f"{folder}/pids.{name}")) for name in ("max", "current")]]
        if most is not None and now is not None
    ]
    if soft is not None and not exempt:
        answer = host.ask("count_tasks", {"uid": os.getuid()})
        used = answer.first.get("tasks")
        refused = answer.status == "absent" and os.strerror(errno.EAGAIN) in answer.reason
        if refused and not any(group.left is not None and group.left < 4 for group in groups):
            # the kernel has just said that the limit is reached
            used = soft
        if used is None:
            reason = f"the user's processes could not be counted: {answer.reason}"
            yield Absent(
                kind=Limit.kind(), about=about, status="timeout", reason=reason, how_to_get="ps -u $USER -L | wc -l"
            )
    yield Limit(subject=about, source="ulimit -u", name="nproc", soft=soft, hard=hard, used=used, exempt=exempt)
    yield from groups


def _memory(host: Host, about: Subject) -> Iterator[Memory]:
    meminfo = host.kernel("/proc/meminfo") or ""
    sizes = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE)}
    rooms = []
    if "MemAvailable" in sizes:
        rooms.append((sizes["MemAvailable"], sizes["MemTotal"], "/proc/meminfo MemAvailable"))
    for folder in _folders(host, "memory"):
        for most_name, now_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            most, now = (_number(host.kernel(f"{folder}/{name}")) for name in (most_name, now_name))
            if most is not None and now is not None:
                # file cache counts as used but makes way
                cache = re.search(r"^(?:total_)?inactive_file (\d+)", host.kernel(f"{folder}/memory.stat") or "", re.M)
                rooms.append((most - now + (int(cache[1]) if cache else 0), most, f"{folder}/{most_name}"))
    if rooms:
        available, total, source = min(rooms)
        yield Memory(subject=about, source=source, available=max(0, available), total=total)


def _folders(host: Host, controller: str) -> Iterator[str]:
    """Folders of this process's cgroup and those above it, version 1 and 2; in a container the path may not be visible,
    then the mount's root is the container's own."""
    for line in (host.kernel("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = f"{CGROUPS}/{controllers}" if controllers else CGROUPS
        while True:
            yield f"{base}{path.rstrip('/')}"
            if path in ("", "/"):
                break
            path = path.rsplit("/", 1)[0]


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdigit() and int(text) < V1_UNLIMITED else None


PROBES = (Probe(name="limits", gives=(Limit, Memory), take=take),)
