"""The real, unmodified libnccl, complete initialisation and a checked all-reduce, without a GPU: every fault is named.

The versions come from `scripts/fetch_nccl.py`; the quick run takes one of them and the faults that end at once.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from ddp_doctor_checks.communicator import from_communicator
from fakes.nccl import Stage, healthy, why_not, with_rules
from fakes.node import Rule, read_node
from nccl_faults import FAULTS, Fault, hang_in, named

from ddp_doctor.facts.communicator import CommunicatorCause, CommunicatorRank, CommunicatorStop
from ddp_doctor.facts.p2p import PairCopy
from ddp_doctor.interpret import nccl_diagnostics
from ddp_doctor.interpret.nccl_phase import interpret
from ddp_doctor.model import Confidence, Facts
from ddp_doctor.probes.communicator import form
from ddp_doctor.readers.nccl_log import parse_all

VERSIONS = ("2.18.3", "2.21.5", "2.27.5", "2.30.7", "2.32.3")
QUICK_VERSION = "2.27.5"
WITH_DIAGNOSTICS = "2.32.3"
QUICK_FAULTS = {"wrong interface", "duplicate gpu", "net ib", "nvml mismatch", "world sizes", "p2p data is wrong"}
SECONDS = 15.0
"""In which every fault must be named."""


def each_fault() -> Iterator[object]:
    for fault in FAULTS:
        for version in VERSIONS:
            if not fault.exists_in(version):
                continue
            quick = version == QUICK_VERSION and fault.name in QUICK_FAULTS
            marks = ([] if quick else [pytest.mark.slow]) + ([pytest.mark.root] if fault.root else [])
            yield pytest.param(fault, version, id=f"{fault.name} {version}", marks=marks)


def each_version() -> Iterator[object]:
    for version in VERSIONS:
        yield pytest.param(version, marks=[] if version == QUICK_VERSION else [pytest.mark.slow])


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage; afterwards no file of NCCL's is left in /dev/shm."""
    before = segments()
    yield Stage(tmp_path)
    assert segments() - before == set()


def segments() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("nccl-*")}


def need(version: str, root: bool = False) -> None:
    reason = why_not(version)
    if reason:
        pytest.skip(reason)
    if root and (os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode):
        pytest.skip("needs root, for namespaces")


def meaning(ranks: list[CommunicatorRank]) -> Facts:
    return Facts([*ranks, *interpret(Facts(ranks))])


@pytest.mark.parametrize("version", list(each_version()))
@pytest.mark.parametrize("lazy", [True, False])
def test_healthy_ranks_pass(version: str, lazy: bool, stage: Stage) -> None:
    need(version)
    environ = {} if lazy else {"NCCL_CUMEM_ENABLE": "0"}
    ranks = form(stage.host(), [stage.plan(rank, 4, version, environ=environ) for rank in range(4)])
    assert [(rank.outcome, rank.value_ok, rank.version) for rank in ranks] == [("passed", True, version)] * 4
    facts = meaning(ranks)
    assert facts[CommunicatorCause] == ()
    assert {stop.phase for stop in facts[CommunicatorStop]} <= {"complete", "first-connected"}
    assert all(stop.warning == "" for stop in facts[CommunicatorStop])


@pytest.mark.parametrize(("fault", "version"), list(each_fault()))
def test_each_fault_is_named(fault: Fault, version: str, stage: Stage) -> None:
    need(version, fault.root)
    started = time.monotonic()
    told = named(fault, version, stage)
    seconds = time.monotonic() - started
    assert [(finding_id, arguments["ranks"]) for finding_id, arguments in told] == [(fault.id, fault.ranks)]
    assert told[0][1]["confidence"] in (Confidence.CERTAIN, Confidence.LIKELY)
    assert seconds < SECONDS
    report = os.environ.get("DDP_DOCTOR_TEST_NCCL_TABLE")
    if report:
        with Path(report).open("a") as file:
            print(
                fault.name,
                version,
                told[0][0],
                fault.ranks,
                told[0][1]["confidence"].value,
                f"{seconds:.1f}",
                sep="|",
                file=file,
            )


@pytest.mark.parametrize("version", list(each_version()))
def test_the_fix_for_a_wrong_interface_mends_it(version: str, stage: Stage) -> None:
    need(version)
    plans = [
        stage.plan(rank, 2, version, environ={"NCCL_SOCKET_IFNAME": "nonexistent"} if rank else {}) for rank in range(2)
    ]
    (cause,) = from_communicator(meaning(form(stage.host(), plans)))
    assert "unset NCCL_SOCKET_IFNAME" in cause[1]["fixes"][0].commands
    mended = [
        msgspec.structs.replace(plan, environ={k: v for k, v in plan.environ.items() if k != "NCCL_SOCKET_IFNAME"})
        for plan in plans
    ]
    assert {rank.outcome for rank in form(stage.host(), mended)} == {"passed"}


@pytest.mark.parametrize("version", list(each_version()))
def test_two_cards_without_p2p_are_connected_through_shared_memory(version: str, stage: Stage) -> None:
    need(version)
    node = read_node("rtx4090x2")
    ranks = form(stage.host(), [stage.plan(rank, 2, version, node=node) for rank in range(2)])
    messages = [line.message for rank in ranks for text in rank.lines for line in parse_all(text)]
    assert any(message.startswith("P2P is disabled between connected GPUs") for message in messages)
    # 2.18 asks CUDA as well, against the driver's word
    assert any(message.startswith("Could not enable P2P between dev") for message in messages) is (version == "2.18.3")
    assert any(" via SHM" in message for message in messages)
    assert meaning(ranks)[CommunicatorCause] == ()


def test_a_slow_rank_is_no_fault(stage: Stage) -> None:
    need(QUICK_VERSION)
    slow = with_rules(healthy(2), Rule(call="cudaGetDeviceProperties_v2", sleep=2.0))
    ranks = form(stage.host(), [stage.plan(0, 2, QUICK_VERSION), stage.plan(1, 2, QUICK_VERSION, node=slow)])
    assert {rank.outcome for rank in ranks} == {"passed"}


def test_the_hang_is_seen_in_the_thread(stage: Stage) -> None:
    """Both ranks print the same lines; only what their threads do tells them apart."""
    need(QUICK_VERSION)
    ranks = form(stage.host(), hang_in("cudaDeviceCanAccessPeer")(stage, QUICK_VERSION), quiet=3.0)
    phases = {stop.phase for stop in meaning(ranks)[CommunicatorStop]}
    assert len(phases) == 1
    assert [cause.ranks for cause in meaning(ranks)[CommunicatorCause]] == [(1,)]


@pytest.mark.slow
def test_its_own_diagnostics_are_read(stage: Stage) -> None:
    """No GPU code runs here, so nothing arrives of what NCCL's kernels would have written: to it both directions fail."""
    need(WITH_DIAGNOSTICS)
    asked = {"NCCL_RUN_DIAGNOSTICS": "1"}
    ranks = form(stage.host(), [stage.plan(rank, 2, WITH_DIAGNOSTICS, environ=asked) for rank in range(2)])
    copies = [copy for copy in nccl_diagnostics.interpret(Facts(ranks)) if isinstance(copy, PairCopy)]
    assert {(copy.first, copy.second, copy.mechanism, copy.outcome) for copy in copies} == {
        (0, 1, "cumem", "wrong-data"),
        (1, 0, "cumem", "wrong-data"),
    }
    plain = form(stage.host(), [stage.plan(rank, 2, WITH_DIAGNOSTICS, name=f"plain{rank}") for rank in range(2)])
    assert nccl_diagnostics.interpret(Facts(plain)) == []


def test_nothing_of_the_fakes_is_in_the_product() -> None:
    product = Path(form.__code__.co_filename).parents[1]
    assert [path for path in product.rglob("*") if path.suffix in (".c", ".so", ".h")] == []
    assert [path for path in product.rglob("*.py") if "fakes" in path.read_text(encoding="utf-8")] == []
