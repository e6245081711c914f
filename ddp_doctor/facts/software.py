"""The examined interpreter's torch, and what happened when ranks of its own were started with it."""

from __future__ import annotations

from typing import Literal

from ddp_doctor.model import Fact, Stage


class TorchInstall(Fact, frozen=True, kw_only=True):
    """Where the examined interpreter would import torch from, found without importing it. `path` is empty if it has none."""

    python: str
    python_version: str = ""
    path: str = ""
    version: str = ""
    cuda: str = ""
    """The CUDA version it was built with, such as `12.8`; empty for a CPU or ROCm build."""
    hip: str = ""
    libnccl: str = ""
    """The libnccl.so.2 that importing torch loads; empty where torch has none or links it statically."""
    nccl_wheels: tuple[str, ...] = ()
    """Every installed distribution that ships a libnccl, such as `nvidia-nccl-cu12 2.27.5`."""

    def text(self) -> str:
        build = f"CUDA {self.cuda}" if self.cuda else f"ROCm {self.hip}" if self.hip else "CPU build"
        return f"torch {self.version} ({build}) at {self.path}" if self.path else f"no torch in {self.python}"


class TorchRuntime(Fact, frozen=True, kw_only=True):
    """What happened when torch was imported. `error` is the exception or signal; empty when it imported."""

    version: str = ""
    cuda: str = ""
    hip: str = ""
    nccl: str = ""
    distributed: bool = False
    gloo: bool = False
    nccl_backend: bool = False
    libuv: bool | None = None
    seconds: float = 0.0
    error: str = ""
    printed: str = ""

    def text(self) -> str:
        return self.error or f"torch {self.version} imported in {self.seconds:.1f} s"


class TorchCuda(Fact, frozen=True, kw_only=True):
    """What torch.cuda answers, asked in a fork that is thrown away. UUIDs are as torch prints them."""

    built: bool
    available: bool
    device_count: int
    error: str = ""
    """The text of the exception `torch.cuda.init()` raises; empty when it initialises."""
    uuids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def text(self) -> str:
        return f"is_available() {self.available}, device_count() {self.device_count}" + (
            f", init: {self.error}" if self.error else ""
        )


class TrialRank(Fact, frozen=True, kw_only=True):
    """One rank that the doctor started itself: how far it came through init_process_group and a checked all-reduce.

    `stage` is the last one it reported before it ended or was killed; `value_ok` is None before the all-reduce returned.
    """

    rank: int
    world_size: int
    backend: str
    stage: Stage
    outcome: Literal["passed", "failed", "timeout"]
    value_ok: bool | None = None
    seconds: float = 0.0
    error: str = ""
    interface: str = ""
    """The value of GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME it ran under; empty if none."""

    def text(self) -> str:
        what = f"{self.backend} rank {self.rank}/{self.world_size} {self.outcome} at {self.stage.label}"
        return f"{what}: {self.error}" if self.error else what
