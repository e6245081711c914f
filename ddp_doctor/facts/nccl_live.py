"""What a running job shows of NCCL and its GPUs: calls that processes stand in, NCCL's own report, who holds a GPU."""

from __future__ import annotations

import msgspec

from ddp_doctor.facts.gpu import GpuProcess
from ddp_doctor.model import Fact

WAITS = frozenset({"polls", "socket", "sleeps", "futex"})
"""What a thread does that waits for other ranks; NCCL polls its sockets, or sleeps between two looks."""


class NcclCall(Fact, frozen=True, kw_only=True):
    """The functions of libnccl that one thread of a process stands in, innermost first; none where it is outside.

    `does` is what the thread does there: one of WAITS, `computes`, `moves` where it went on to another call, or the name
    or number of the system call that it stood in for a second.
    """

    library: str
    version: str = ""
    frames: tuple[str, ...] = ()
    does: str = ""
    unseen: str = ""
    """Why its functions cannot be seen, as in a library without symbols; the evidence of the others still counts."""

    @property
    def entry(self) -> str:
        """The function of NCCL's interface by which it came in; `ncclCommInitRank` for its variants."""
        if not self.frames:
            return ""
        return "ncclCommInitRank" if self.frames[-1].startswith("ncclCommInitRank") else self.frames[-1]

    def text(self) -> str:
        inside = " < ".join(self.frames[:6]) + (" < ..." if len(self.frames) > 6 else "")
        return (
            f"NCCL {self.version or '?'}: {inside} ({self.does})"
            if self.frames
            else f"NCCL {self.version or '?'} {self.unseen}".rstrip()
        )


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as NCCL's RAS thread tells of it. `ready`: its initialisation is over."""

    rank: int
    pid: int | None = None
    host: str = ""
    ready: bool | None = None
    launched: int | None = None
    """How many collectives it has launched."""
    lost: bool = False
    """Whether RAS has no connection with its process."""

    @property
    def words(self) -> str:
        """The rank as a person would name it."""
        who = f"rank {self.rank} (PID {self.pid} on {self.host})"
        if self.lost:
            return f"{who} is out of reach"
        return f"{who} {'in init' if self.ready is False else f'launched {self.launched}'}"


class RasCommunicator(Fact, frozen=True, kw_only=True):
    """One communicator as NCCL's own RAS service tells of it; `status` and `errors` in its words; SILENT
    where it gave no answer."""

    version: str = ""
    size: int | None = None
    status: str = ""
    errors: str = ""
    ranks: tuple[RasRank, ...] = ()
    lines: tuple[str, ...] = ()
    """What it warns of, word by word."""

    def text(self) -> str:
        told = "; ".join(self.lines[:4]) or "; ".join(each.words for each in self.ranks[:4])
        return f"RAS of NCCL {self.version}: communicator of {self.size} ranks {self.status} {self.errors}".rstrip() + (
            f": {told}" if told else ""
        )


class GpuUse(Fact, frozen=True, kw_only=True):
    """Who holds one GPU of the job's node, as NVML tells. `label` names the GPU for people."""

    index: int
    uuid: str = ""
    label: str = ""
    own_pids: bool = False
    """Whether PIDs of this PID namespace are not the driver's."""
    processes: tuple[GpuProcess, ...] = ()

    def text(self) -> str:
        return f"{self.label}: {', '.join(each.text() for each in self.processes) or 'nobody'}"
