"""Pairs of GPUs: what the driver and CUDA say of peer-to-peer access, and what NCCL will do with each pair."""

from __future__ import annotations

from typing import Literal

from ddp_doctor.model import Fact

Link = Literal["nvlink", "board", "switch", "switches", "host-bridge", "numa-node", "system"]
"""What connects two GPUs, nearest first: NVML's topology levels below NVLink. nvidia-smi prints them as NV#, PIX, PXB, PHB,
NODE, SYS (`board` has no name there)."""

Route = Literal["p2p", "shm", "net", "fails"]
Mechanism = Literal["ipc", "cumem"]
"""How a process maps memory of another one's GPU: a legacy IPC handle, or a descriptor of a cuMem allocation. NCCL up to
2.18 knows the first only; later versions take the second where driver and GPU have it."""
CopyOutcome = Literal["passed", "unsupported", "failed", "wrong-data", "no-answer"]


class P2pPair(Fact, frozen=True, kw_only=True):
    """Two GPUs of one node, in this order (`first` reads from and writes to `second`); None means that nobody told.

    `read` and `write` are NVML's P2P status, `ok` or why not; `peer` is cuDeviceCanAccessPeer of the visible devices.
    """

    first: int
    second: int
    read: str | None = None
    write: str | None = None
    link: Link | None = None
    peer: bool | None = None
    cpu: str = ""
    """The CPU's vendor as /proc/cpuinfo names it, which NCCL's default depends on; `arm` where it is none of x86."""

    @property
    def ok(self) -> bool | None:
        """Whether NVML allows reading and writing; None where it did not say."""
        statuses = [status for status in (self.read, self.write) if status is not None]
        return all(status == "ok" for status in statuses) if statuses else None

    def text(self) -> str:
        access = "not asked" if self.peer is None else "yes" if self.peer else "no"
        nvml = self.read if self.read == self.write else f"read {self.read}, write {self.write}"
        return f"GPU {self.first} -> {self.second} ({self.link or 'unknown link'}): NVML {nvml}, cuDeviceCanAccessPeer {access}"


class PairRoute(Fact, frozen=True, kw_only=True):
    """What this NCCL will do with a pair, and why. `segment` is what one connection of it takes in /dev/shm, in bytes."""

    first: int
    second: int
    route: Route
    why: str
    version: str = ""
    link: Link | None = None
    denied: bool = False
    """Whether the driver denies P2P to the pair."""
    segment: int = 0

    def text(self) -> str:
        return f"GPU {self.first} -> {self.second}: {self.route}, {self.why}"


class PairCopy(Fact, frozen=True, kw_only=True):
    """A kernel on GPU `first` loaded from and stored to memory of GPU `second` that another process holds: the doctor's own
    processes, or NCCL's diagnostics.

    `step` is where it ended: `offer` (a handle of the memory), `open` (that handle, in the other process), `map`, `launch`,
    `run` (the kernel), `read` (what it loaded was checked) or `write` (what it stored). `call` is the driver call that
    failed or did not return.
    """

    first: int
    second: int
    mechanism: Mechanism
    outcome: CopyOutcome
    step: str = ""
    call: str = ""
    code: int | None = None
    error: str = ""

    @property
    def arrived(self) -> bool | None:
        """Whether data took the way unharmed; None where it never set out."""
        if self.outcome == "passed":
            return True
        return False if self.outcome == "wrong-data" or self.step == "run" else None

    def text(self) -> str:
        way = f"GPU {self.first} -> {self.second} by {WAYS[self.mechanism]}"
        if self.outcome == "wrong-data":
            return f"{way}: wrong data {'read' if self.step == 'read' else 'written'}, {self.error}"
        if self.outcome == "no-answer":
            return f"{way}: {'the kernel never ends' if self.step == 'run' else f'{self.call} gives no answer'}"
        if self.outcome == "failed":
            return f"{way}: {self.call} ({self.step}): {self.error}"
        return f"{way}: {self.outcome}" + (f", {self.error}" if self.error else "")


WAYS: dict[Mechanism, str] = {"ipc": "CUDA IPC", "cumem": "cuMem"}
