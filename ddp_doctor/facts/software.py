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
    needs_nccl: str = ""
    """The NCCL distribution this torch declares to need, in the same form; empty where it declares none."""
    nccl_owner: str = ""
    """Which of `nccl_wheels` the file `libnccl` came from, by its recorded size; empty where none or several fit."""
    installer: Literal["pip", "uv", ""] = ""
    """What can install into it: its own pip, uv into a virtual environment without pip, nothing where it is managed."""

    def text(self) -> str:
        build = f"CUDA {self.cuda}" if self.cuda else f"ROCm {self.hip}" if self.hip else "CPU build"
        return f"torch {self.version} ({build}) at {self.path}" if self.path else f"no torch in {self.python}"


IMPORT_SECONDS = 30.0
"""A first import of torch from a busy network file system may take that long and be well."""


class TorchRuntime(Fact, frozen=True, kw_only=True):
    """What happened when torch was imported. `error` is the exception or signal; empty when it imported.

    `source` is the interpreter. `libnccl` is the file that is then mapped, which is what a job uses. `libuv` is known
    once a store was made. `printed` is what was written to stdout and stderr, kept only where the import failed.
    """

    outcome: Literal["imported", "raised", "died", "timeout"] = "imported"

    version: str = ""
    cuda: str = ""
    hip: str = ""
    nccl: str = ""
    distributed: bool = False
    gloo: bool = False
    nccl_backend: bool = False
    libnccl: str = ""
    libuv: bool | None = None
    seconds: float = 0.0
    error: str = ""
    printed: str = ""
    python_variables: tuple[str, ...] = ()
    """Names of the variables that the interpreter itself obeys, such as PYTHONWARNINGS; kept only where it failed."""

    @property
    def given_up_early(self) -> bool:
        """Whether the import was ended before a slow one could have: that is no evidence of anything."""
        return self.outcome == "timeout" and self.seconds < IMPORT_SECONDS

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
    `timeout` is one that did not come back, or that came back with torch's own words about a time-out in `error`;
    `unfinished` means that it was ended because another rank of the trial had failed. The number is the rank in the
    trial, which is no rank of a job, so the subject carries none.
    """

    rank: int
    world_size: int
    backend: str
    stage: Stage
    outcome: Literal["passed", "failed", "timeout", "unfinished"]
    value_ok: bool | None = None
    seconds: float = 0.0
    error: str = ""
    interface: str = ""
    """The value of GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME it ran under; empty if none."""
    address: str = ""
    """The address Gloo listened on, read from the rank's own socket; empty before that or without Gloo."""
    given: float = 0.0
    """How many seconds the trial was given; 0 where that is not known."""

    def text(self) -> str:
        what = f"{self.backend} rank {self.rank}/{self.world_size} {self.outcome} at {self.stage.label}"
        return f"{what}: {self.error}" if self.error else what
