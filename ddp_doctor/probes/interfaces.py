"""This node's network interfaces, and which of them lead to the default route and to MASTER_ADDR."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.names import Interface, Resolution, Route
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, Subject

IFF_UP, IFF_LOOPBACK, IFF_POINTOPOINT, IFF_RUNNING = 0x1, 0x8, 0x10, 0x40
Device = Literal["physical", "bridge", "veth", "tunnel", "bond", "virtual", "loopback"]


class _Entry(ctypes.Structure):
    """The head of `struct ifaddrs`; what follows is not read."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """One Interface each, by ifindex."""
    del facts
    subject = Subject(host=host.name)
    flags, addresses = _entries()
    for index, name in sorted(socket.if_nameindex()):
        bits = flags.get(name, 0)
        yield Interface(
            subject=subject,
            source="getifaddrs",
            name=name,
            index=index,
            addresses=tuple(sorted(addresses.get(name, ()), key=lambda address: ":" in address)),
            up=bool(bits & IFF_UP),
            running=bool(bits & IFF_RUNNING),
            loopback=bool(bits & IFF_LOOPBACK),
            device=_device(host, name, bits),
        )


def take_way(host: Host, facts: Facts) -> Iterator[Observation]:
    """The default route and the way to each address of the master: connecting a UDP socket asks the kernel, sends nothing."""
    interfaces = facts[Interface]
    default = _default_route(host)
    if default:
        yield Route(subject=Subject(host=host.name), source="/proc/net/route", to="default", interface=default)
    for address in master_addresses(facts):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        local, error = "", ""
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((address, 9))
                local = sock.getsockname()[0].partition("%")[0]
        except OSError as failure:
            error = failure.strerror or str(failure)
        yield Route(
            subject=Subject(host=host.name),
            source="kernel routing",
            to=address,
            interface=next((each.name for each in interfaces if local in each.addresses), "lo" if local else ""),
            local_address=local,
            error=error,
        )


def master_addresses(facts: Facts) -> tuple[str, ...]:
    """The addresses that MASTER_ADDR (or the endpoint) stands for."""
    found = [address for each in facts[Resolution] if each.role == "master" for address in each.addresses]
    return tuple(dict.fromkeys(found))


def _entries() -> tuple[dict[str, int], dict[str, list[str]]]:
    """Flags and addresses of every interface, from getifaddrs as NCCL and Gloo call it (down ones included)."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(head)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    flags: dict[str, int] = {}
    addresses: dict[str, list[str]] = {}
    try:
        entry = head
        while entry:
            name = entry.contents.name.decode("utf-8", "replace")
            flags[name] = entry.contents.flags
            address = _address(entry.contents.address)
            if address:
                addresses.setdefault(name, []).append(address)
            entry = entry.contents.next
    finally:
        libc.freeifaddrs(head)
    return flags, addresses


def _address(pointer: int | None) -> str:
    if not pointer:
        return ""
    (family,) = struct.unpack("=H", ctypes.string_at(pointer, 2))
    if family == socket.AF_INET:
        return socket.inet_ntop(family, ctypes.string_at(pointer + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, ctypes.string_at(pointer + 8, 16))
    return ""


def _device(host: Host, name: str, flags: int) -> Device:
    here = Path("/sys/class/net") / name
    if flags & IFF_LOOPBACK:
        return "loopback"
    if (here / "bridge").is_dir():
        # a bridge that holds the machine's own link stands for that link
        ports = [here.parent / port.name for port in here.glob("brif/*")]
        return "physical" if any(_is_link(port) for port in ports) else "bridge"
    if (here / "bonding").is_dir():
        return "bond"
    if (here / "tun_flags").exists() or flags & IFF_POINTOPOINT:
        return "tunnel"
    if (here / "device").exists():
        return "physical"
    # a veth end names its peer's index; VLANs do too, but they also link to the interface below them
    peer = (host.kernel(str(here / "iflink")) or "").strip()
    if peer and peer != (host.kernel(str(here / "ifindex")) or "").strip() and not any(here.glob("lower_*")):
        return "veth"
    return "virtual"


def _is_link(interface: Path) -> bool:
    """Whether it is, or lies on, a physical interface."""
    return any((interface / mark).exists() for mark in ("device", "bonding")) or any(interface.glob("lower_*"))


def _default_route(host: Host) -> str:
    """The interface of the IPv4 default route with the lowest metric, else of the IPv6 one; empty if there is none."""
    routes = [line.split() for line in (host.kernel("/proc/net/route") or "").splitlines()[1:]]
    found = [(int(fields[6]), fields[0]) for fields in routes if fields[1] == "00000000" and fields[7] == "00000000"]
    if not found:
        routes = [line.split() for line in (host.kernel("/proc/net/ipv6_route") or "").splitlines()]
        found = [
            (int(fields[5], 16), fields[9])
            for fields in routes
            if fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo"
        ]
    return min(found)[1] if found else ""


PROBES = (
    Probe(name="interfaces", gives=(Interface,), take=take),
    Probe(name="way", gives=(Route,), builds_on=(Interface, Resolution), take=take_way),
)
