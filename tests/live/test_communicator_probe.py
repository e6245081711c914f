"""The communicator as `run` meets it: who may be disturbed, and one whole examination on a described node."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from fakes.nccl import Stage, healthy, libnccl, why_not
from fakes.node import Holder, Node, read_node, write_kernel_files

from ddp_doctor.collect import Collected, collect
from ddp_doctor.facts.communicator import CommunicatorCause, CommunicatorRank
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Host, Options
from ddp_doctor.interpret import interpret, interpreters
from ddp_doctor.judge import judge
from ddp_doctor.model import Facts, Severity, Subject
from ddp_doctor.packs import load_packs
from ddp_doctor.probes import communicator, gpu_cuda, gpu_driver, gpu_node, p2p

VERSION = "2.27.5"
PROBES = (*gpu_driver.PROBES, *gpu_cuda.PROBES, *gpu_node.PROBES, *p2p.PROBES, *communicator.PROBES)
HARMFUL = {"cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cudaMalloc", "cuMemCreate"}

pytestmark = pytest.mark.skipif(bool(why_not(VERSION)), reason=why_not(VERSION) or "can run")


def run(node: Node, stage: Stage, ranks: int, options: Options | None = None, **environ: str) -> Collected:
    root = stage.folder / "root"
    write_kernel_files(node, root)
    fakes = stage.environ(node, "node", ranks)
    host = Host(
        60,
        environ={"PATH": "/usr/bin:/bin", "HOME": str(stage.folder), "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
        | fakes
        | environ,
        root=str(root),
        options=options,
    )
    install = TorchInstall(
        subject=Subject(host=host.name),
        python="python",
        path="/site/torch",
        version="2.9.0",
        cuda="12.8",
        libnccl=str(libnccl(VERSION)),
        nccl_wheels=(f"nvidia-nccl-cu12 {VERSION}",),
    )
    return collect(host, PROBES, Facts([install]))


def held(node: Node, mib: int = 0) -> Node:
    holder = Holder(pid=4242, mib=mib)
    return msgspec.structs.replace(node, gpus=(msgspec.structs.replace(node.gpus[0], processes=(holder,)),))


def with_gpus(**changes: object) -> Node:
    node = healthy(2)
    return msgspec.structs.replace(node, gpus=(msgspec.structs.replace(node.gpus[0], **changes),))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (held(healthy(2), 9000), "GPU 0 used by PID 4242"),
        (with_gpus(compute_mode="exclusive-process"), "GPU 0 is in compute mode exclusive-process"),
        (with_gpus(memory_gib=80, used_mib=80 * 1024 - 1000), "MiB free"),
        (msgspec.structs.replace(healthy(2), kernel=read_node("mps").kernel), "MPS"),
    ],
    ids=["in use", "exclusive", "full", "mps"],
)
def test_nobody_is_disturbed(node: Node, reason: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    collected = run(node, stage, 2)
    (absent,) = collected.facts.lacking(CommunicatorRank)
    assert absent.status == "denied" and reason in absent.reason
    assert "--active always" in absent.how_to_get
    assert collected.facts[CommunicatorRank] == ()
    assert not HARMFUL & set(stage.calls("node"))


def test_never_means_never(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    collected = run(healthy(2), stage, 2, Options(active="never"))
    assert [absent.reason for absent in collected.facts.lacking(CommunicatorRank)] == ["--active never"]
    assert not HARMFUL & set(stage.calls("node"))


def test_always_goes_on_a_gpu_in_use(tmp_path: Path) -> None:
    collected = run(held(healthy(2)), Stage(tmp_path), 2, Options(active="always"))
    assert {rank.outcome for rank in collected.facts[CommunicatorRank]} == {"passed"}


def test_more_ranks_than_gpus_is_a_duplicate_gpu(tmp_path: Path) -> None:
    collected = run(healthy(1), Stage(tmp_path), 2, Options(nproc=2))
    facts = interpret(collected.facts, interpreters())
    assert [cause.fault for cause in facts[CommunicatorCause]] == ["duplicate-gpu"]


def test_a_healthy_node_gives_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    collected = run(healthy(8), Stage(tmp_path), 8)
    assert time.monotonic() - started < 20.0
    facts = interpret(collected.facts, interpreters())
    assert [rank.outcome for rank in facts[CommunicatorRank]] == ["passed"] * 8
    checks = [
        check for check in load_packs(third_party=False).checks() if check.id[:4] in ("DDP1", "DDP3", "DDP4", "DDP5")
    ]
    judged = judge(checks, facts)
    grave = [
        finding
        for judgement in judged
        for finding in judgement.findings
        if finding.severity is not Severity.NOTE and finding.id in {shown for shown, _ in _shown(facts)}
    ]
    assert grave == []
    assert [judgement.outcome.status for judgement in judged if judgement.check.id == "DDP402"] == ["clear"]


def _shown(facts: Facts) -> list[tuple[str, dict[str, object]]]:
    from ddp_doctor_checks.communicator import from_communicator

    return list(from_communicator(facts))


def test_a_wrong_interface_is_found_by_the_whole_house(tmp_path: Path) -> None:
    collected = run(healthy(2), Stage(tmp_path), 2, NCCL_SOCKET_IFNAME="nonexistent")
    facts = interpret(collected.facts, interpreters())
    checks = [check for check in load_packs(third_party=False).checks() if check.id == "DDP301"]
    (finding,) = [finding for judgement in judge(checks, facts) for finding in judgement.findings]
    assert finding.ranks == (0,) and "nonexistent" in finding.summary
