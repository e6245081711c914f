"""Facts of a healthy GPU node, for tests of checks that change one thing in them."""

from __future__ import annotations

from typing import Any

from checking import run_check

from ddp_doctor.facts.gpu import CudaDevice, CudaView, DeviceNode, DriverGpu, DriverState, GpuNode, PciGpu
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.facts.software import TorchCuda, TorchInstall
from ddp_doctor.interpret import interpret, interpreters
from ddp_doctor.judge import Judgement
from ddp_doctor.model import Absent, Check, Fact, Facts

NAME = "NVIDIA H100 80GB HBM3"


def node(**changes: Any) -> GpuNode:
    values: dict[str, Any] = {
        "pci": (PciGpu(address="0000:01:00.0"), PciGpu(address="0000:02:00.0")),
        "nodes": tuple(DeviceNode(path=f"/dev/{name}") for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")),
        "module_version": "570.86.15",
    }
    return GpuNode(**(values | changes))


def state(**changes: Any) -> DriverState:
    values: dict[str, Any] = {
        "code": 0,
        "status": "ok",
        "driver_version": "570.86.15",
        "cuda_version": "12.8",
        "gpus": 2,
    }
    return DriverState(**(values | changes))


def gpu(index: int = 0, **changes: Any) -> DriverGpu:
    values: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "name": NAME,
        "memory_total": 81920,
        "memory_free": 81420,
        "memory_used": 500,
        "compute_mode": "default",
    }
    return DriverGpu(index=index, **(values | changes))


def cuda(*devices: int, **changes: Any) -> CudaView:
    seen = tuple(CudaDevice(ordinal=n, uuid=f"GPU-{i}", gpu_uuid=f"GPU-{i}", name=NAME) for n, i in enumerate(devices))
    values: dict[str, Any] = {
        "code": 0,
        "result": "CUDA_SUCCESS",
        "cuda_version": "12.8",
        "count": len(seen),
        "devices": seen,
    }
    return CudaView(**(values | changes))


def torch(cuda_version: str = "12.8", hip: str = "") -> TorchInstall:
    return TorchInstall(python="python", path="/site/torch", version="2.9.0", cuda=cuda_version, hip=hip)


def torch_cuda(available: bool = True, count: int = 2, error: str = "") -> TorchCuda:
    return TorchCuda(built=True, available=available, device_count=count, error=error)


def launcher(ranks: int, alive: bool | None = True) -> Launcher:
    return Launcher(name="torchrun", variables=("LOCAL_WORLD_SIZE",), local_world_size=ranks, alive=alive)


def healthy() -> list[Fact]:
    """Two GPUs that driver, CUDA and torch agree on, idle."""
    return [node(), state(), gpu(0), gpu(1), cuda(0, 1), torch(), torch_cuda()]


def judge_gpus(check: type[Check], *changed: Fact | Absent) -> Judgement:
    """Judge a healthy node in which these facts and absences stand for all of their kinds."""
    kinds = {item.kind() if isinstance(item, Fact) else item.kind for item in changed}
    facts = Facts(
        [fact for fact in healthy() if fact.kind() not in kinds] + [item for item in changed if isinstance(item, Fact)],
        [item for item in changed if isinstance(item, Absent)],
    )
    meant = interpret(facts, interpreters())
    return run_check(check, *meant, *meant.absents)
