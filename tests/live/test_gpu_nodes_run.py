"""`ddp-doctor run` itself on every described node: the ids written in it, whom it leaves alone, and that it ends in time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from fakes import torch_cuda
from fakes.nccl import healthy, why_not
from fakes.node import Gpus, Holder, Node, Rule, have_compiler, node_names, read_node
from gpu_nodes import HARMFUL, Site, run

pytestmark = [pytest.mark.live, pytest.mark.root]
if os.geteuid() != 0:
    pytest.skip("needs root for mount namespaces", allow_module_level=True)
if not have_compiler():
    pytest.skip("the fake driver libraries are built with gcc, which is missing", allow_module_level=True)
if torch_cuda.why_not():
    pytest.skip(torch_cuda.why_not(), allow_module_level=True)

VERSION = "2.27.5"
OLDEST = "2.18.3"
QUICK = {"nvlink_refused", "mig_one_rank"}
FIRST_PID_NAMESPACE = "pid:[4026531836]"
TIMEOUT = 10.0
ALLOWED = TIMEOUT + 2.0
AT_ONCE = 2


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """With a libnccl where there is one to run; without it there are no trials, and the same ids."""
    nccl = "" if why_not(VERSION) else VERSION
    return Site.make(tmp_path_factory.mktemp("site") / "site", "12.8", nccl)


@pytest.fixture(scope="session")
def site_with_nccl(site: Site) -> Site:
    if not site.nccl:
        pytest.skip(why_not(VERSION))
    return site


def every_node() -> Iterator[object]:
    for name in node_names():
        yield pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])


@pytest.mark.parametrize("name", list(every_node()))
def test_a_node_yields_its_ids(name: str, site: Site, tmp_path: Path) -> None:
    node = read_node(name)
    if name == "dead_holder" and os.readlink("/proc/self/ns/pid") != FIRST_PID_NAMESPACE:
        pytest.skip("in a PID namespace of its own a process that is not seen need not be gone")
    if name == "nvlink_refused" and not site.nccl:
        pytest.skip(f"what NCCL does with such a pair depends on its version; {why_not(VERSION)}")
    ran = run(node, tmp_path, site)
    assert (ran.claims, ran.notes) == (sorted(node.expect), sorted(node.notes)), ran.report["findings"]
    assert not [outcome for outcome in ran.report["outcomes"] if outcome["status"] == "crashed"]
    failing = bool(ran.ids("error"))
    assert ran.code == int(failing)


@pytest.mark.slow
def test_a_driver_that_takes_20_seconds_is_slow_and_not_broken(site: Site, tmp_path: Path) -> None:
    node = read_node("slow_driver")
    (rule,) = node.rules
    ran = run(msgspec.structs.replace(node, rules=(msgspec.structs.replace(rule, sleep=20.0),)), tmp_path, site)
    assert (ran.claims, ran.notes) == ([], ["DDP408"])
    assert ran.seconds < 60.0


def test_the_line_people_fear_is_a_note(site_with_nccl: Site, tmp_path: Path) -> None:
    ran = run(read_node("rtx4090x2"), tmp_path, site_with_nccl, text=True)
    words = " ".join(ran.text.split())
    assert ran.code == 0
    assert "note[DDP412]: no P2P between GPUs 0-1: chipset not supported" in words
    assert f"NCCL {VERSION} connects them through shared memory of the host" in words
    assert "`P2P is disabled between connected GPUs` says this; it costs bandwidth and stops nothing" in words
    assert "NCCL_IGNORE_DISABLED_P2P=1 only silences the line" in words
    assert "trial communicator" in words and "all-reduced right values" in words
    assert "look elsewhere for what stops it: `ddp-doctor attach --all`" in words
    assert "  GPU0  -     SHM\n  GPU1  SHM   -\n" in ran.text


@pytest.mark.slow
def test_the_oldest_nccl_prints_both_lines_of_the_seed(tmp_path: Path) -> None:
    if why_not(OLDEST):
        pytest.skip(why_not(OLDEST))
    site = Site.make(tmp_path / "site", "12.8", OLDEST)
    folder = tmp_path / "node"
    folder.mkdir()
    ran = run(read_node("rtx4090x2"), folder, site)
    (note,) = [found for found in ran.report["findings"] if found["id"] == "DDP412"]
    assert "NCCL_IGNORE_DISABLED_P2P=1 really switches P2P off for the pair" in note["because"]
    assert "Could not enable P2P" in note["because"]
    assert [pair["route"] for pair in ran.report["pairs"]] == ["shm", "shm"]
    assert ran.claims == []


def with_gpus(**changes: object) -> Node:
    node = healthy(2)
    group: Gpus = msgspec.structs.replace(node.gpus[0], **changes)
    return msgspec.structs.replace(node, gpus=(group,))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (with_gpus(processes=(Holder(pid=1, mib=600),)), "GPU 0 used by PID 1"),
        pytest.param(
            with_gpus(compute_mode="exclusive-process"),
            "GPU 0 is in compute mode exclusive-process",
            marks=pytest.mark.slow,
        ),
        pytest.param(read_node("mps"), "MPS shares these GPUs", marks=pytest.mark.slow),
        (with_gpus(used_mib=79 * 1024), "GPU 0 has 1024 MiB free"),
    ],
    ids=["in use", "exclusive", "mps", "1 GB free"],
)
def test_nobody_is_disturbed(node: Node, reason: str, site_with_nccl: Site, tmp_path: Path) -> None:
    ran = run(node, tmp_path, site_with_nccl)
    assert not HARMFUL & set(ran.calls)
    (probe,) = [probe for probe in ran.report["probes"] if probe["name"] == "communicator"]
    assert probe["status"] == "denied" and reason in probe["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("version", [VERSION, OLDEST])
@pytest.mark.parametrize(
    ("rule", "confidence", "summary"),
    [
        (Rule(call="kernel_over_p2p", fail=1), "certain", "arrives wrong: GPU 0 -> 1 by CUDA IPC: wrong data read"),
        (
            Rule(call="kernel_over_p2p", hang=True),
            "likely",
            "never arrives: GPU 0 -> 1 by CUDA IPC: the kernel never ends",
        ),
    ],
    ids=["wrong", "lost"],
)
def test_p2p_that_is_promised_and_not_kept(
    rule: Rule, confidence: str, summary: str, version: str, tmp_path: Path
) -> None:
    if why_not(version):
        pytest.skip(why_not(version))
    node = read_node("rtx4090x2")
    pair = msgspec.structs.replace(node, p2p=msgspec.structs.replace(node.p2p, every_pair=0), rules=(rule,))
    # far apart, so that NCCL's default would not use P2P on every CPU
    environ = {"NCCL_P2P_LEVEL": "SYS"}
    ran = run(pair, make(tmp_path / "node"), Site.make(tmp_path / "site", "12.8", version), environ=environ)
    assert ran.claims == ["DDP401"]
    (found,) = [found for found in ran.report["findings"] if found["id"] == "DDP401"]
    assert found["confidence"] == confidence and summary in found["summary"]
    assert ran.report["verdict"]["finding"] == "DDP401"


def test_free_gpus_are_tried_and_their_pairs_are_in_the_json(site_with_nccl: Site, tmp_path: Path) -> None:
    ran = run(healthy(2), tmp_path, site_with_nccl)
    pairs = ran.report["pairs"]
    # so that the test above means something: the calls it misses are made on GPUs that are free
    assert {"cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"} <= HARMFUL & set(ran.calls)
    assert [(pair["first"], pair["second"], pair["route"], pair["link"]) for pair in pairs] == [
        (0, 1, "p2p", "nvlink"),
        (1, 0, "p2p", "nvlink"),
    ]


@pytest.mark.slow
def test_ends_in_time_whatever_call_hangs(site_with_nccl: Site, tmp_path: Path) -> None:
    """Each call that a node with two GPUs, or one with MIG, was really asked. NCCL's own show as NCCL's."""
    asked = {
        (name, call)
        for name, node in (("two", healthy(2)), ("mig", read_node("mig_one_rank")))
        for call in run(node, make(tmp_path / name), site_with_nccl).calls
    }
    two = {call for name, call in asked if name == "two"}
    of_probes = set(run(healthy(2), make(tmp_path / "probes"), site_with_nccl, "--active", "never").calls)
    cases = [(healthy(2), call) for call in sorted(two)]
    cases += [(read_node("mig_one_rank"), call) for call in sorted({call for _, call in asked} - two)]

    def hang(case: tuple[Node, str], suffix: str = "") -> tuple[str, float, str]:
        node, call = case
        node = msgspec.structs.replace(node, rules=(Rule(call=call, hang=True),))
        ran = run(node, make(tmp_path / f"{call}{suffix}"), site_with_nccl, "--timeout", str(TIMEOUT))
        told = json.dumps([ran.report["probes"], ran.report["findings"], ran.report["outcomes"]])
        return call, ran.seconds, told

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(hang, cases))
    late = {call: round(seconds, 1) for call, seconds, _ in found if seconds > ALLOWED}
    # on a machine that others use: what is late beside another run has to be in time alone
    alone = [hang(case, "-again") for case in cases if case[1] in late]
    late = {call: round(seconds, 1) for call, seconds, _ in alone if seconds > ALLOWED}
    silent = [call for call, _, told in found if not named(call, told, call not in of_probes)]
    print(f"{len(found)} calls, the slowest ended after {max(seconds for _, seconds, _ in found):.1f} s")
    assert late == {}
    assert silent == []


def named(call: str, told: str, in_a_rank: bool) -> bool:
    """Whether the report names the call, or what of NCCL's made it in a rank: nobody sees into NCCL."""
    name = SHOWN_AS.get(call, call).removesuffix("_v2").removesuffix("_v3")
    return any(each in told for each in (name, *(NCCLS if in_a_rank else ())))


SHOWN_AS = {"nvmlInitWithFlags": "nvmlInit"}
"""The name under which nvidia-ml-py has a function."""
NCCLS = ("ncclCommInitRank", "ncclAllReduce", "cuStreamQuery")


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder
