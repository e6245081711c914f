"""Pairs of GPUs of described nodes, asked through real ctypes; a driver that hangs costs no more than the deadline."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from fakes.node import Node, Rule, have_compiler, read_node, set_up

from ddp_doctor.collect import Observation, collect
from ddp_doctor.facts.p2p import P2pPair
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts
from ddp_doctor.probes import gpu_driver, p2p

pytestmark = pytest.mark.skipif(
    not have_compiler(), reason="the fake driver libraries are built with gcc, which is missing"
)


def look(node: Node, folder: Path, seconds: float = 10.0) -> list[Observation]:
    setup = set_up(node, folder)
    host = Host(seconds, environ=setup.environ, root=str(setup.root))
    collected = collect(host, (*gpu_driver.PROBES, *p2p.PROBES), Facts())
    assert not {"cuCtxCreate_v2", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"} & set(setup.calls())
    return [*collected.facts[P2pPair], *collected.facts.lacking(P2pPair)]


def test_two_cards_that_may_not_reach_each_other(tmp_path: Path) -> None:
    pairs = look(read_node("rtx4090x2"), tmp_path)
    assert [(pair.first, pair.second, pair.read, pair.write, pair.link, pair.peer) for pair in pairs] == [
        (0, 1, "chipset not supported", "chipset not supported", "host-bridge", False),
        (1, 0, "chipset not supported", "chipset not supported", "host-bridge", False),
    ]


def test_every_pair_of_a_healthy_node(tmp_path: Path) -> None:
    pairs = [pair for pair in look(read_node("h100x8"), tmp_path) if isinstance(pair, P2pPair)]
    assert len(pairs) == 56
    assert all(pair.ok and pair.peer for pair in pairs)


@pytest.mark.parametrize("call", ["nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"])
def test_a_call_that_hangs_is_named(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p2p, "SECONDS", 1.0)
    node = read_node("rtx4090x2")
    started = time.monotonic()
    seen = look(msgspec.structs.replace(node, rules=(Rule(call=call, hang=True),)), tmp_path)
    assert time.monotonic() - started < 5.0
    assert [type(item) for item in seen] == [Absent]
    assert call in seen[0].reason and seen[0].status == "timeout"


def test_a_libcuda_that_hangs_costs_only_what_it_would_have_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p2p, "SECONDS", 1.0)
    node = read_node("rtx4090x2")
    seen = look(msgspec.structs.replace(node, rules=(Rule(call="cuInit", hang=True),)), tmp_path)
    assert [(pair.read, pair.peer) for pair in seen if isinstance(pair, P2pPair)] == [
        ("chipset not supported", None)
    ] * 2
