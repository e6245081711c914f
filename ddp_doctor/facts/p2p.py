"""Pairs of GPUs: what the driver and CUDA say of peer-to-peer access, and what NCCL will do with each pair."""

from __future__ import annotations

from typing import Literal

from ddp_doctor.model import Fact

Link = Literal["nvlink", "board", "switch", "switches", "host-bridge", "numa-node", "system"]
"""What connects two GPUs, nearest first: NVML's topology levels below NVLink. nvidia-smi prints them as NV#, PIX, PXB, PHB,
NODE, SYS (`board` has no name there)."""

Route = Literal["p2p", "shm", "net", "fails"]


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
