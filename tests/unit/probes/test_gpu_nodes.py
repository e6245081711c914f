"""Each described node, asked by the real workers through real pynvml and ctypes, yields exactly the ids written in it."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from fakes.node import Holder, Node, Rule, Setup, have_compiler, node_names, read_node, set_up

from ddp_doctor.collect import Collected, collect
from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.facts.software import TorchCuda, TorchInstall
from ddp_doctor.host import Host
from ddp_doctor.interpret import interpret, interpreters
from ddp_doctor.judge import judge
from ddp_doctor.model import Fact, Facts, Finding, Severity, Subject
from ddp_doctor.packs import load_pack
from ddp_doctor.probes import gpu_cuda, gpu_driver, gpu_node, nvidia_smi, p2p

pytestmark = pytest.mark.skipif(
    not have_compiler(), reason="the fake driver libraries are built with gcc, which is missing"
)

PROBES = (*gpu_driver.PROBES, *gpu_cuda.PROBES, *gpu_node.PROBES, *p2p.PROBES)
IDS = ("DDP105", "DDP106", "DDP108", "DDP403", "DDP404", "DDP406", "DDP407", "DDP408", "DDP409", "DDP410", "DDP411",
       "DDP412", "DDP413", "DDP501")  # fmt: skip
HANG_SECONDS = 2.5  # less than 2 would be no evidence
HARMFUL = {"cuCtxCreate_v2", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"}


def examine(node: Node, setup: Setup, seconds: float = 20.0) -> Collected:
    host = Host(seconds, environ=setup.environ, root=str(setup.root))
    about = Subject(host=host.name)
    known: list[Fact] = [
        TorchInstall(
            subject=about,
            python="python",
            path="/site/torch",
            version="2.9.0",
            cuda=node.torch_cuda,
            nccl_wheels=("nvidia-nccl-cu12 2.27.5",),
        )
    ]
    if node.torch:
        known.append(
            TorchCuda(
                subject=about,
                built=True,
                available=node.torch.available,
                device_count=node.torch.device_count,
                error=node.torch.error,
            )
        )
    if node.local_world_size:
        known.append(
            Launcher(
                subject=about, name="torchrun", variables=("LOCAL_WORLD_SIZE",), local_world_size=node.local_world_size
            )
        )
    return collect(host, PROBES, Facts(known))


def findings(facts: Facts) -> list[Finding]:
    checks = [check() for check in load_pack("ddp_doctor_checks").checks if check.id in IDS]
    meant = interpret(facts, interpreters())
    judgements = judge(checks, meant)
    crashed = [judgement.outcome for judgement in judgements if judgement.outcome.status == "crashed"]
    assert not crashed
    return [finding for judgement in judgements for finding in judgement.findings]


@pytest.mark.parametrize("name", node_names())
def test_node_yields_its_ids(name: str, tmp_path: Path) -> None:
    node = read_node(name)
    setup = set_up(node, tmp_path)
    hangs = any(rule.hang for rule in node.rules)
    found = findings(examine(node, setup, HANG_SECONDS if hangs else 20.0).facts)
    claims = sorted({finding.id for finding in found if finding.severity is not Severity.NOTE})
    notes = sorted({finding.id for finding in found if finding.severity is Severity.NOTE})
    assert (claims, notes) == (sorted(node.expect), sorted(node.notes)), [finding.summary for finding in found]
    assert not HARMFUL.intersection(setup.calls())


def test_every_call_that_hangs_is_named_in_time(tmp_path: Path) -> None:
    """The calls are those that a node with MIG, processes and a mask is really asked; each hangs in its turn."""
    whole = read_node("mig")
    group = msgspec.structs.replace(whole.gpus[0], processes=(Holder(pid=1, mib=600),))
    whole = msgspec.structs.replace(whole, gpus=(group,))
    setup = set_up(whole, make(tmp_path / "healthy"))
    examine(whole, setup)
    calls = sorted(set(setup.calls()))
    assert {"nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo", "cuInit", "cuDeviceGetUuid_v2"} <= set(calls)

    def hang(call: str) -> tuple[str, float, Collected]:
        node = msgspec.structs.replace(whole, rules=(Rule(call=call, hang=True),))
        hung = set_up(node, make(tmp_path / call))
        started = time.monotonic()
        collected = examine(node, hung, HANG_SECONDS)
        return call, time.monotonic() - started, collected

    with ThreadPoolExecutor(8) as pool:
        for call, seconds, collected in pool.map(hang, calls):
            reasons = [run.reason for run in collected.runs if run.status == "timeout"]
            named = [reason.split(":")[0].split(" for GPU")[0] for reason in reasons]
            assert any(call.startswith(name) for name in named), (call, reasons)
            assert seconds < HANG_SECONDS + 5.0  # the machine may be busy; a call that hung would take for ever


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_what_was_seen_before_a_hang_is_kept(tmp_path: Path) -> None:
    node = msgspec.structs.replace(read_node("h100x8"), rules=(Rule(call="nvmlDeviceGetMemoryInfo", gpu=2, hang=True),))
    facts = examine(node, set_up(node, tmp_path), HANG_SECONDS).facts
    assert [gpu.index for gpu in facts[DriverGpu] if gpu.uuid] == [0, 1]
    assert [gpu.unanswered for gpu in facts[DriverGpu] if not gpu.uuid] == ["nvmlDeviceGetMemoryInfo"]
    assert facts.lacking(DriverGpu)[0].reason.startswith("nvmlDeviceGetMemoryInfo for GPU 2: no answer in")
    assert [finding.id for finding in findings(facts)] == ["DDP407"]


def test_the_three_views_of_a_healthy_node_agree(tmp_path: Path) -> None:
    node = read_node("h100x8")
    facts = examine(node, set_up(node, tmp_path)).facts
    state, cuda = facts[DriverState][0], facts[CudaView][0]
    assert (state.driver_version, state.cuda_version, state.gpus) == ("570.86.15", "12.8", 8)
    assert (cuda.result, cuda.cuda_version, cuda.count) == ("CUDA_SUCCESS", "12.8", 8)
    assert [gpu.uuid for gpu in facts[DriverGpu]] == [device.gpu_uuid for device in cuda.devices]
    first = facts[DriverGpu][0]
    assert (first.memory_total, first.memory_used, first.compute_mode) == (81920, 500, "default")
    assert (first.fabric_state, first.ecc_uncorrected, first.mig, first.errors) == ("completed", 0, None, ())


def test_masks_and_order_are_cudas(tmp_path: Path) -> None:
    node = read_node("mixed_order")
    facts = examine(node, set_up(node, tmp_path)).facts
    masked = next(view for view in facts[CudaView] if view.masked)
    whole = next(view for view in facts[CudaView] if not view.masked)
    assert [device.name for device in whole.devices] == ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce GTX 1080"]
    assert [device.name for device in masked.devices] == ["NVIDIA GeForce GTX 1080"]
    assert masked.mask == "1"
    assert whole.mask is None


def test_a_machine_without_a_driver_is_seen_as_such(tmp_path: Path) -> None:
    node = read_node("no_gpu")
    collected = examine(node, set_up(node, tmp_path))
    assert {run.status for run in collected.runs if run.name != "p2p"} == {"ok"}
    assert not collected.facts[DriverState][0].library
    assert not collected.facts[CudaView][0].library


def test_nvidia_smi_is_asked_only_where_nvml_cannot_be_loaded(tmp_path: Path) -> None:
    program = make(tmp_path / "bin") / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho '0, GPU-1, L4, 0:1, 23034, 22000, 1034'\n")
    program.chmod(0o755)

    def gpus(name: str) -> list[str]:
        setup = set_up(read_node(name), make(tmp_path / name))
        host = Host(20.0, environ=setup.environ | {"PATH": f"{program.parent}:/usr/bin:/bin"}, root=str(setup.root))
        return [gpu.source for gpu in collect(host, (*PROBES, *nvidia_smi.PROBES), Facts()).facts[DriverGpu]]

    assert gpus("no_utility") == ["nvidia-smi"]
    assert "nvidia-smi" not in gpus("h100x8")
    assert gpus("no_gpu") == []
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.parametrize(
    "name",
    ["mask_empty_entry", "mask_duplicate", "mask_out_of_range", "mask_unknown_uuid", "mask_hides_all", "mixed_order"],
)
def test_the_printed_fix_takes_the_finding_away(name: str, tmp_path: Path) -> None:
    node = read_node(name)
    (broken,) = findings(examine(node, set_up(node, make(tmp_path / "broken"))).facts)
    for number, fix in enumerate(broken.fixes):
        script = "\n".join((*fix.commands, "env -0"))
        shell = subprocess.run(["sh", "-ec", script], env=node.environ, capture_output=True, check=True, text=True)
        variables = dict(line.split("=", 1) for line in shell.stdout.split("\0") if line)
        environ = {key: variables[key] for key in variables if key.startswith("CUDA_")}
        mended = msgspec.structs.replace(node, environ=environ)
        assert findings(examine(mended, set_up(mended, make(tmp_path / f"fix{number}"))).facts) == []
