"""Gloo's choice: the variable, else the hostname, else loopback."""

from __future__ import annotations

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import GlooInterface, Interface, Resolution
from ddp_doctor.interpret.gloo_interface import interpret
from ddp_doctor.model import Facts

LO = Interface(name="lo", index=1, addresses=("127.0.0.1", "::1"), up=True, running=True, loopback=True)
ETH0 = Interface(name="eth0", index=2, addresses=("10.0.0.5",), up=True, running=True)


def choices(*facts: Variable | Resolution) -> list[tuple[str, str, str]]:
    found = interpret(Facts([LO, ETH0, *facts]))
    return [(each.chosen_by, each.interface, each.address) for each in found if isinstance(each, GlooInterface)]


def own(*addresses: str, error: str = "") -> Resolution:
    return Resolution(name="node7", role="hostname", addresses=addresses, error=error)


def test_the_hostnames_first_address_of_this_node() -> None:
    assert choices(own("10.9.9.9", "10.0.0.5")) == [("hostname", "eth0", "10.0.0.5")]
    assert choices(own("127.0.1.1")) == [("hostname", "lo", "127.0.1.1")]


def test_loopback_where_the_hostname_leads_nowhere_here() -> None:
    assert choices(own("10.9.9.9")) == [("fallback", "lo", "127.0.0.1")]
    assert choices(own(error="Name or service not known")) == [("fallback", "lo", "127.0.0.1")]


def test_the_variable_wins_names_exactly_and_may_be_a_list() -> None:
    variable = Variable(name="GLOO_SOCKET_IFNAME", value="eth0,eth")
    assert choices(own("127.0.1.1"), variable) == [("variable", "eth0", "10.0.0.5"), ("variable", "", "")]
    empty = Variable(name="GLOO_SOCKET_IFNAME", value="")
    assert choices(own("10.0.0.5"), empty) == [("hostname", "eth0", "10.0.0.5")]
