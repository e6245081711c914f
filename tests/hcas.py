"""Hosts with RDMA adapters, as trees of sysfs that the real probe reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ddp_doctor.collect import collect
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.rdma import HcaPort
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, Subject
from ddp_doctor.probes.rdma import PROBES

V2_IPV4 = {
    0: ("fe80::1", "IB/RoCE v1"),
    1: ("fe80::1", "RoCE v2"),
    2: ("::ffff:10.0.0.1", "IB/RoCE v1"),
    3: ("::ffff:10.0.0.1", "RoCE v2"),
}
"""A usual table of a RoCE port: entry 3 is the routable one."""


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """Port 1 of one adapter, as its files say."""

    hca: str = "mlx5_0"
    state: str = "4: ACTIVE"
    physical: str = "5: LinkUp"
    link_layer: str = "Ethernet"
    rate: str = "200 Gb/sec (4X HDR)"
    gids: Mapping[int, tuple[str, str]] = msgspec.field(default_factory=lambda: V2_IPV4)


def write(root: Path, *ports: Port) -> None:
    """The files of these ports, as the kernel writes them."""
    (root / "sys/class/infiniband").mkdir(parents=True)
    for port in ports:
        here = root / "sys/class/infiniband" / port.hca / "ports/1"
        for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (here / folder).mkdir(parents=True)
        for name in ("state", "link_layer", "rate"):
            (here / name).write_text(getattr(port, name) + "\n")
        (here / "phys_state").write_text(port.physical + "\n")
        for index in range(16):
            address, kind = port.gids.get(index, ("::", ""))
            (here / "gids" / str(index)).write_text(address + "\n")
            if kind:
                (here / "gid_attrs/types" / str(index)).write_text(kind + "\n")


def seen(folder: Path, variables: Mapping[str, str] | None = None, **hosts: tuple[Port, ...]) -> Facts:
    """What the probe brings of each of these hosts, with the same variables in effect on all."""
    facts = Facts()
    for name, ports in hosts.items():
        write(folder / name, *ports)
        host = Host(20.0, root=str(folder / name))
        host.name = name
        found = collect(host, PROBES, Facts()).facts
        assert len(found[HcaPort]) == len(ports)
        facts = facts.plus(found, found.absents, found.looked_for)
        facts = facts.plus(
            Variable(subject=Subject(host=name), source="environment", name=each, value=value)
            for each, value in (variables or {}).items()
        )
    return facts
