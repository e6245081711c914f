"""NCCL's choice by its rule, on hosts on which the real library was tried."""

from __future__ import annotations

import pytest

from ddp_doctor.facts.names import Interface
from ddp_doctor.interpret.nccl_sockets import sockets_of

OLD, NEW = "2.27.5", "2.30.7"


def host(*names: str, stopped: tuple[str, ...] = ()) -> list[Interface]:
    """Interfaces in this order of ifindex, after loopback."""
    return [
        Interface(
            name=name,
            index=index,
            addresses=("127.0.0.1", "::1") if name == "lo" else (f"10.0.{index}.1",),
            up=True,
            running=name not in stopped,
            loopback=name == "lo",
        )
        for index, name in enumerate(("lo", *names), 1)
    ]


@pytest.mark.parametrize(
    ("names", "ifname", "chosen"),
    [
        (("docker0", "eth0"), None, ("eth0",)),
        (("docker0", "eth0"), "^lo", ("docker0", "eth0")),
        (("docker0", "eth0"), "^docker0,lo", ("eth0",)),
        (("virbr0", "eth0"), None, ("eth0",)),
        (("virbr0", "eth0"), "^docker0,lo", ("virbr0", "eth0")),
        (("br-1a2b", "eth0"), None, ("br-1a2b", "eth0")),
        (("eth0", "ib0"), None, ("ib0",)),
        (("eth0", "ib0"), "eth", ("eth0",)),
        (("eth0", "eth01"), "=eth0", ("eth0",)),
        (("eth0", "eth01"), "^=eth0", ("lo", "eth01")),
        (("eth0",), " eth0", ()),
        (("eth0",), '"eth0"', ()),
        (("eth0",), "e", ("eth0",)),
        (("docker0",), None, ("docker0",)),
        ((), None, ("lo",)),
        ((), "^lo", ()),
    ],
)
def test_names_and_patterns(names: tuple[str, ...], ifname: str | None, chosen: tuple[str, ...]) -> None:
    assert sockets_of(host(*names), ifname, None, NEW) == chosen


def test_the_carrier_counts_since_2_28() -> None:
    interfaces = host("eth0", "eth1", stopped=("eth0",))
    assert sockets_of(interfaces, None, None, OLD) == ("eth0", "eth1")
    assert sockets_of(interfaces, None, None, NEW) == ("eth1",)


def test_virbr_is_left_out_since_2_28() -> None:
    assert sockets_of(host("virbr0", "eth0"), None, None, OLD) == ("virbr0", "eth0")


def test_ipv4_comes_first_and_a_family_leaves_the_other_out() -> None:
    interfaces = [
        Interface(name="veth1", index=2, addresses=("fe80::1",), up=True, running=True),
        Interface(name="eth0", index=3, addresses=("10.0.0.5", "fd00::5"), up=True, running=True),
    ]
    assert sockets_of(interfaces, None, None, NEW) == ("eth0", "veth1")
    assert sockets_of(interfaces, None, "AF_INET6", NEW) == ("veth1", "eth0")
    assert sockets_of(interfaces, None, "AF_INET", NEW) == ("eth0",)
