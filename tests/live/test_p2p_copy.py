"""Data between GPUs, compared: two processes, both mechanisms, on nodes whose memory the fakes keep in files.

The kernel itself is PTX; where a `ptxas` is installed it is assembled for real.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from fakes.nccl import Stage, healthy, with_rules
from fakes.node import Holder, Node, Rule, have_compiler, read_node, write_kernel_files

from ddp_doctor.collect import Collected, collect
from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.p2p import PairCopy
from ddp_doctor.host import Host, Options
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes import gpu_cuda, gpu_driver, gpu_node, p2p, p2p_copy

PROBES = (*gpu_driver.PROBES, *gpu_cuda.PROBES, *gpu_node.PROBES, *p2p.PROBES, *p2p_copy.PROBES)
HARMFUL = {"cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemCreate", "cuModuleLoadData"}
VIA = "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
STOPPED = CommunicatorRank(rank=0, world_size=2, device=0, outcome="timeout", lines=(VIA,))

pytestmark = pytest.mark.skipif(
    not have_compiler(), reason="the fake driver libraries are built with gcc, which is missing"
)


def copies(
    node: Node, folder: Path, *known: CommunicatorRank | Absent, options: Options | None = None, **environ: str
) -> tuple[Collected, list[str]]:
    stage = Stage(folder)
    root = folder / "root"
    write_kernel_files(node, root)
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
    fakes = stage.environ(node, "node", len(node.all_gpus))
    host = Host(40.0, environ=plain | fakes | environ, root=str(root), options=options)
    given = known or (STOPPED,)
    facts = Facts(
        [item for item in given if isinstance(item, CommunicatorRank)],
        [item for item in given if isinstance(item, Absent)],
    )
    return collect(host, PROBES, facts), stage.calls("node")


def told(collected: Collected) -> set[tuple[int, int, str, str, str]]:
    return {
        (copy.first, copy.second, copy.mechanism, copy.outcome, copy.step if copy.outcome != "passed" else "")
        for copy in collected.facts[PairCopy]
    }


def test_every_direction_of_every_pair_passes_by_both_mechanisms(tmp_path: Path) -> None:
    collected, _ = copies(healthy(3), tmp_path)
    ordered = [(first, second) for first in range(3) for second in range(3) if first != second]
    assert told(collected) == {(*pair, way, "passed", "") for pair in ordered for way in ("ipc", "cumem")}


def test_the_pairs_are_numbered_as_nvml_does(tmp_path: Path) -> None:
    collected, _ = copies(healthy(3), tmp_path, CUDA_VISIBLE_DEVICES="2,1")
    assert {(copy.first, copy.second) for copy in collected.facts[PairCopy]} == {(1, 2), (2, 1)}


def test_data_that_a_gpu_reads_or_writes_wrong(tmp_path: Path) -> None:
    rule = Rule(call="kernel_over_p2p", gpu=1, fail=1)
    collected, _ = copies(with_rules(healthy(2), rule), tmp_path)
    ways = ("ipc", "cumem")
    assert told(collected) == {(0, 1, way, "passed", "") for way in ways} | {
        (1, 0, way, "wrong-data", "read") for way in ways
    }
    wrong = next(copy for copy in collected.facts[PairCopy] if copy.outcome == "wrong-data")
    assert "16384 of 16384 words, the first 0x00000000 instead of" in wrong.text()


@pytest.mark.parametrize(
    ("call", "step", "mechanism"),
    [
        ("cuIpcOpenMemHandle_v2", "open", "ipc"),
        ("cuMemImportFromShareableHandle", "open", "cumem"),
        ("cuLaunchKernel", "launch", "ipc"),
    ],
)
def test_a_call_that_fails_is_told_with_its_step(call: str, step: str, mechanism: str, tmp_path: Path) -> None:
    collected, _ = copies(with_rules(healthy(2), Rule(call=call, fail=801)), tmp_path)
    failed = [copy for copy in collected.facts[PairCopy] if copy.outcome == "failed" and copy.mechanism == mechanism]
    assert [(copy.call, copy.step, copy.code, copy.error) for copy in failed] == [
        (call, step, 801, "operation not supported")
    ] * 2
    if step == "open":
        assert {copy.outcome for copy in collected.facts[PairCopy] if copy.mechanism != mechanism} == {"passed"}


def test_no_handle_is_no_failure(tmp_path: Path) -> None:
    """NCCL asks in the same way, and takes another."""
    collected, _ = copies(with_rules(healthy(2), Rule(call="cuIpcGetMemHandle", fail=801)), tmp_path)
    assert {(copy.mechanism, copy.outcome) for copy in collected.facts[PairCopy]} == {
        ("ipc", "unsupported"),
        ("cumem", "passed"),
    }


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        (Rule(call="kernel_over_p2p", hang=True), (0, 1, "ipc", "no-answer", "run")),
        (Rule(call="cuIpcOpenMemHandle_v2", gpu=1, hang=True), (1, 0, "ipc", "no-answer", "open")),
    ],
    ids=["kernel", "open"],
)
def test_a_hang_ends_in_time_and_nothing_is_tried_after_it(
    rule: Rule, seen: tuple[int, int, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p2p_copy, "ANSWER_SECONDS", 2.0)
    started = time.monotonic()
    collected, _ = copies(with_rules(healthy(2), rule), tmp_path)
    assert time.monotonic() - started < 12.0
    assert collected.facts[PairCopy][-1].outcome == "no-answer"
    assert {item for item in told(collected) if item[3] != "passed"} == {seen}


def test_a_gpu_that_gives_no_context_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p2p_copy, "START_SECONDS", 2.0)
    collected, _ = copies(with_rules(healthy(2), Rule(call="cuDevicePrimaryCtxRetain", gpu=1, hang=True)), tmp_path)
    assert [(absent.status, absent.reason) for absent in collected.facts.lacking(PairCopy)] == [
        ("timeout", "GPU 1: cuDevicePrimaryCtxRetain: no answer")
    ]


def with_gpus(**changes: object) -> Node:
    node = healthy(2)
    return msgspec.structs.replace(node, gpus=(msgspec.structs.replace(node.gpus[0], **changes),))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (with_gpus(processes=(Holder(pid=4242, mib=600),)), "GPU 0 used by PID 4242"),
        (with_gpus(compute_mode="exclusive-process"), "compute mode exclusive-process"),
        (with_gpus(used_mib=79 * 1024), "1024 MiB free"),
        (msgspec.structs.replace(healthy(2), kernel=read_node("mps").kernel), "MPS"),
    ],
    ids=["in use", "exclusive", "1 GB free", "mps"],
)
def test_nobody_is_disturbed(node: Node, reason: str, tmp_path: Path) -> None:
    collected, calls = copies(node, tmp_path)
    (absent,) = collected.facts.lacking(PairCopy)
    assert absent.status == "denied" and reason in absent.reason
    assert not HARMFUL & set(calls)


@pytest.mark.parametrize(
    "known",
    [
        CommunicatorRank(rank=0, world_size=2, device=0, outcome="passed", lines=(VIA,)),
        CommunicatorRank(rank=0, world_size=2, device=0, outcome="failed"),
        Absent(kind="CommunicatorRank", about=Subject(), status="timeout", reason="no time"),
    ],
    ids=["the trial passed", "it never came to P2P", "no time was left"],
)
def test_it_is_not_done_where_it_would_tell_nothing(known: CommunicatorRank | Absent, tmp_path: Path) -> None:
    collected, calls = copies(healthy(2), tmp_path, known)
    assert collected.facts[PairCopy] == () and not HARMFUL & set(calls)


def test_never_and_always(tmp_path: Path) -> None:
    passed = CommunicatorRank(rank=0, world_size=2, device=0, outcome="passed")
    (tmp_path / "never").mkdir()
    (tmp_path / "always").mkdir()
    collected, calls = copies(healthy(2), tmp_path / "never", options=Options(active="never"))
    assert [absent.reason for absent in collected.facts.lacking(PairCopy)] == ["--active never"]
    assert not HARMFUL & set(calls)
    collected, _ = copies(healthy(2), tmp_path / "always", passed, options=Options(active="always"))
    assert {copy.outcome for copy in collected.facts[PairCopy]} == {"passed"}


def test_pairs_without_p2p_are_left_out(tmp_path: Path) -> None:
    collected, calls = copies(read_node("rtx4090x2"), tmp_path)
    assert collected.facts[PairCopy] == () and not HARMFUL & set(calls)


def ptxas() -> str | None:
    spec = importlib.util.find_spec("triton")
    beside = Path(spec.origin).parent / "backends/nvidia/bin/ptxas" if spec and spec.origin else None
    return str(beside) if beside and beside.exists() else shutil.which("ptxas")


@pytest.mark.skipif(ptxas() is None, reason="no ptxas here")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_kernel_is_valid(architecture: str, tmp_path: Path) -> None:
    worker = Path(p2p_copy.__file__).parents[1] / "workers" / "p2p_copy.py"
    scope: dict[str, object] = {}
    exec(compile(worker.read_text(), str(worker), "exec"), scope)
    kernel = scope["KERNEL"]
    assert isinstance(kernel, bytes)
    (tmp_path / "kernel.ptx").write_bytes(kernel)
    assembler = ptxas()
    assert assembler
    command = [assembler, f"-arch={architecture}", str(tmp_path / "kernel.ptx"), "-o", str(tmp_path / "kernel.cubin")]
    subprocess.run(command, check=True)
