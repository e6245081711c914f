"""Interfaces of a real kernel, and what the real NCCL chooses among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examining import PATHS, Room, apply_fix, findings, libnccl, room

VERSIONS = ("2.18.3", "2.21.5", "2.27.5", "2.30.7")
TWO_NODES = {"NNODES": "2"}
SEE = """
import json, sys
from examining import network_facts
facts = network_facts(*json.loads(sys.argv[1]))
print(json.dumps([[fact.kind(), json.loads(__import__("msgspec").json.encode(fact))] for fact in facts]))
"""

pytestmark = pytest.mark.root


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Room]:
    with room(tmp_path) as made:
        yield made


def with_docker(inside: Room) -> None:
    """docker0 older than eth0, as where the machine's own link came up late."""
    inside.bridge("docker0", "172.17.0.1/16")
    with_link(inside)


def with_link(inside: Room) -> None:
    inside.pair("eth0", "10.77.0.5/24")
    inside.ip("route", "add", "default", "via", "10.77.0.1")


def see(inside: Room, environ: dict[str, str], library: str = "") -> dict[str, list[dict[str, Any]]]:
    """Every fact about names and interfaces inside, by kind."""
    inside.settle()
    argv = inside.argv(sys.executable, "-c", SEE, json.dumps([environ, library]))
    done = subprocess.run(argv, env={"PATH": os.environ["PATH"], "PYTHONPATH": PATHS}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, fact in json.loads(done.stdout):
        found.setdefault(kind, []).append(fact)
    return found


def test_kinds_states_and_routes(inside: Room) -> None:
    inside.bridge("br-1a2b", "172.18.0.1/16", busy=False)
    inside.pair("eno1", "10.1.0.5/24", up=False)
    inside.pair("eno2", "10.2.0.5/24", carrier=False)
    inside.ip("tuntap", "add", "wg0", "mode", "tun")
    inside.pair("eth0", "10.77.0.5/24")
    inside.ip("addr", "add", "fd00:77::5/64", "dev", "eth0", "nodad")
    inside.ip("route", "add", "default", "via", "10.77.0.1")
    seen = see(inside, {"MASTER_ADDR": "10.2.0.9", "MASTER_PORT": "29500", "RANK": "0"})
    by_name = {each["name"]: each for each in seen["Interface"]}
    assert [by_name[name]["device"] for name in ("lo", "br-1a2b", "wg0", "eth0")] == [
        "loopback",
        "bridge",
        "tunnel",
        "veth",
    ]
    states = {
        name: (by_name[name].get("up", False), by_name[name].get("running", False)) for name in ("eno1", "eno2", "eth0")
    }
    assert states == {"eno1": (False, False), "eno2": (True, False), "eth0": (True, True)}
    assert by_name["eth0"]["addresses"][:2] == ["10.77.0.5", "fd00:77::5"]
    assert [each["index"] for each in seen["Interface"]] == sorted(each["index"] for each in seen["Interface"])
    routes = {each["to"]: (each["interface"], each.get("local_address", "")) for each in seen["Route"]}
    assert routes["default"] == ("eth0", "")
    assert routes["10.2.0.9"][0] == "eno2"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rule_agrees_with_the_library(inside: Room, version: str) -> None:
    """The rule is needed for the further interfaces, which the library does not tell."""
    library = libnccl(version)
    with_docker(inside)
    inside.pair("eno1", "10.1.0.5/24", up=False)
    inside.bridge("virbr0", "192.168.122.1/24")
    for ifname in (None, "^lo", "^docker", "eno", "=eth0", "^=eth0", "eth9", " eth0"):
        seen = see(inside, {} if ifname is None else {"NCCL_SOCKET_IFNAME": ifname}, library)
        (asked,) = seen["NcclInterface"]
        (rule,) = seen["NcclSockets"]
        assert asked["version"] == version
        assert (asked.get("interface") or None) == next(iter(rule.get("interfaces", [])), None), ifname
        assert asked.get("ifname") == ifname
        assert bool(asked.get("error")) is (ifname in ("eth9", " eth0") or (ifname == "eno" and version == "2.30.7"))


@pytest.mark.parametrize("ifname", ["eth9", " eth0", '"eth0"', "^lo"])
@pytest.mark.parametrize("asked", [True, False], ids=["libnccl", "rule"])
def test_a_wrong_name_is_told_and_the_printed_one_is_right(inside: Room, ifname: str, asked: bool) -> None:
    library = libnccl() if asked else ""
    with_docker(inside)
    environ = {"NCCL_SOCKET_IFNAME": ifname}
    assert findings(inside.examine({}, libnccl=library)) == {}
    finding = findings(inside.examine(environ, libnccl=library))["DDP301"]
    assert finding["confidence"] == ("certain" if asked and ifname != "^lo" else "likely")
    mended = apply_fix(finding, environ)
    assert mended == {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert findings(inside.examine(mended, libnccl=library)) == {}


def test_a_name_from_a_conf_file_is_seen_and_overridden(inside: Room, tmp_path: Path) -> None:
    library = libnccl("2.27.5")
    with_docker(inside)
    conf = tmp_path / "nccl.conf"
    conf.write_text('NCCL_SOCKET_IFNAME="eth0"\nNCCL_DEBUG=WARN\n')
    environ = {"NCCL_CONF_FILE": str(conf)}
    finding = findings(inside.examine(environ, libnccl=library))["DDP301"]
    assert """'"eth0"'""" in finding["summary"]
    assert findings(inside.examine(apply_fix(finding, environ), libnccl=library)) == {}


@pytest.mark.parametrize(
    ("name", "address", "link"),
    [
        ("usb0", "169.254.3.1/24", {}),
        ("eno1", "10.1.0.5/24", {"up": False}),
        ("eno1", "10.1.0.5/24", {"carrier": False}),
    ],
)
def test_links_that_old_nccl_prefers(inside: Room, name: str, address: str, link: dict[str, bool]) -> None:
    """The link that comes first is chosen by NCCL up to 2.27 even where it is down."""
    library = libnccl("2.27.5")
    inside.pair(name, address, **link)
    with_link(inside)
    assert "DDP301" not in findings(inside.examine({}, libnccl=library))
    finding = findings(inside.examine(TWO_NODES, libnccl=library))["DDP301"]
    assert finding["severity"] == "error" and f"NCCL will use {name}" in finding["summary"]
    assert "DDP301" not in findings(inside.examine(apply_fix(finding, TWO_NODES), libnccl=library))


def test_a_container_bridge_beside_the_link_is_warned_of_between_nodes(inside: Room) -> None:
    library = libnccl()
    with_link(inside)
    inside.bridge("br-1a2b", "172.18.0.1/16")
    finding = findings(inside.examine(TWO_NODES, libnccl=library))["DDP301"]
    assert finding["severity"] == "warning" and "also br-1a2b" in finding["summary"]
    assert "DDP301" not in findings(inside.examine(apply_fix(finding, TWO_NODES), libnccl=library))


def test_a_bridge_that_carries_the_default_route_is_right(inside: Room) -> None:
    inside.bridge("br0", "10.77.0.5/24")
    inside.ip("route", "add", "default", "via", "10.77.0.1")
    assert "DDP301" not in findings(inside.examine(TWO_NODES, libnccl=libnccl()))


def test_a_family_without_addresses(inside: Room) -> None:
    library = libnccl()
    inside.ip("addr", "del", "::1/128", "dev", "lo")
    subprocess.run(inside.argv("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"), check=True)
    with_link(inside)
    environ = {"NCCL_SOCKET_FAMILY": "AF_INET6"}
    finding = findings(inside.examine(environ, libnccl=library))["DDP303"]
    assert finding["confidence"] == "certain"
    for number in range(2):
        assert findings(inside.examine(apply_fix(finding, environ, number), libnccl=library)) == {}


def test_gloos_names_are_exact(inside: Room) -> None:
    with_link(inside)
    environ = {"GLOO_SOCKET_IFNAME": "eth"}
    finding = findings(inside.examine(environ))["DDP301"]
    assert "Unable to find address for: eth" in finding["because"]
    assert findings(inside.examine(apply_fix(finding, environ))) == {}


def test_the_libraries_own_files_stay_untouched(inside: Room, tmp_path: Path) -> None:
    with_link(inside)
    log = tmp_path / "job.log"
    log.write_text("the job's own lines\n")
    see(inside, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(log), "NCCL_TOPO_DUMP_FILE": str(log)}, libnccl())
    assert log.read_text() == "the job's own lines\n"
