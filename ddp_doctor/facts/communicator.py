"""Ranks of a communicator: those the doctor started on a libnccl, and what their NCCL lines mean."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.model import Fact, Stage

Outcome = Literal["passed", "failed", "timeout", "crashed", "unfinished"]
Phase = Literal[
    "silent",
    "interface",
    "driver",
    "network",
    "bootstrap",
    "exchange",
    "topology",
    "rings",
    "connect",
    "connected",
    "complete",
    "first-connect",
    "first-connected",
]
"""How far a rank's lines show it, in order. It is *in* that phase: `bootstrap` waits for other ranks, `exchange` reads its
GPU's identity, `topology` what connects the GPUs, `connect` joins the transports. The last two are `connect` and its end
where NCCL leaves them to the first collective (2.22 and later, with cuMem)."""

STAGES: dict[Phase, Stage] = {
    "silent": Stage.INITIALIZED,
    "interface": Stage.COMM_BOOTSTRAP,
    "driver": Stage.COMM_BOOTSTRAP,
    "network": Stage.COMM_BOOTSTRAP,
    "bootstrap": Stage.COMM_BOOTSTRAP,
    "exchange": Stage.COMM_TOPOLOGY,
    "topology": Stage.COMM_TOPOLOGY,
    "rings": Stage.COMM_TOPOLOGY,
    "connect": Stage.TRANSPORT,
    "connected": Stage.TRANSPORT,
    "complete": Stage.FIRST_COLLECTIVE,
    "first-connect": Stage.TRANSPORT,
    "first-connected": Stage.FIRST_COLLECTIVE,
}
"""The stage of a rank in each phase."""

Fault = Literal[
    "interface",
    "unreachable",
    "missing",
    "duplicate-gpu",
    "duplicate-rank",
    "world-size",
    "nccl-version",
    "driver-version",
    "shm-full",
    "shm-apart",
    "net-absent",
    "nvml-missing",
    "no-transport",
    "nvlink-without-p2p",
    "late-in-device",
    "late-in-library",
    "stuck-in-driver",
    "stuck-in-connect",
    "stuck-in-collective",
    "absent-from-collective",
    "wrong-values",
    "unnamed",
]


class CommunicatorRank(Fact, frozen=True, kw_only=True):
    """One rank that the doctor started itself, alone on a libnccl: how far ncclCommInitRank and a checked all-reduce came.

    `step` is the last one it began. `unfinished` means that it still waited when another rank had failed. `value_ok` is
    None before the all-reduce returned. `call` is the last one of the driver or NCCL that it
    made. `last_error` is ncclGetLastError, which no success ever clears.
    """

    rank: int
    world_size: int
    device: int
    libnccl: str = ""
    version: str = ""
    step: str = ""
    outcome: Outcome = "timeout"
    call: str = ""
    code: int | None = None
    error: str = ""
    last_error: str = ""
    value_ok: bool | None = None
    seconds: float = 0.0
    uuid: str = ""
    """The GPU's UUID in hexadecimal digits, without `GPU-` and dashes."""
    pci: str = ""
    shm_device: int | None = None
    """st_dev of its /dev/shm: NCCL takes ranks with different ones for ranks of different hosts."""
    network: str = ""
    """Its network namespace."""
    hostname: str = ""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """The NCCL_* variables it ran under."""
    threads: dict[str, str] = msgspec.field(default_factory=dict)
    """What each thread did at the end: `polls` (its sockets), `computes`, or the system call it stood in."""
    without_p2p: bool = False
    """Whether it is of the second trial, with NCCL_P2P_DISABLE=1."""
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        what = f"NCCL {self.version or '?'} rank {self.rank}/{self.world_size} {self.outcome} at {self.step or 'start'}"
        if self.error:
            return f"{what}: {self.call} -> {self.error}"
        if self.call and self.outcome == "timeout":
            return f"{what}, in {self.call}"
        return f"{what}: wrong values" if self.value_ok is False else what


class CommunicatorStop(Fact, frozen=True, kw_only=True):
    """Where one rank of a communicator stands, by its own NCCL lines and by the version that printed them.

    `line` is the last line that shows progress, `warning` the last WARN that is not known noise.
    """

    rank: int
    phase: Phase
    stage: Stage
    version: str = ""
    line: str = ""
    warning: str = ""

    def text(self) -> str:
        return f"rank {self.rank} in {self.phase}" + (f": {self.line}" if self.line else "")


class CommunicatorCause(Fact, frozen=True, kw_only=True):
    """The one fault that explains why the ranks of a communicator did not all come through.

    `ranks` have the fault, `waiting` only wait for them. `line` is the decisive evidence in NCCL's (or the system's) own
    words. `certain` is False where the fault is inferred from where the ranks stand.
    """

    fault: Fault
    ranks: tuple[int, ...]
    waiting: tuple[int, ...] = ()
    line: str = ""
    certain: bool = True
    details: dict[str, str] = msgspec.field(default_factory=dict)

    def text(self) -> str:
        return self.line or f"{self.fault}: rank {', '.join(map(str, self.ranks))}"
