"""Limits and room of this machine: what a process may open, lock, start and store."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.model import Fact


def size(count: int) -> str:
    """A number of bytes as a person writes it: `64.0 MiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


class Limit(Fact, frozen=True, kw_only=True):
    """One limit of this process. `soft` and `hard` are None when unlimited; memlock and as (address space) are in bytes,
    cpu is in seconds of one process, the others are numbers. `ports` are those the kernel chooses from for a socket.

    `used` is how much is taken where that is known. `exempt` says a privilege lifts it. `needed_by` names the devices
    that need it. `pids` is the cgroup's limit of processes and threads, `nproc` the user's.
    """

    name: Literal["nofile", "nproc", "pids", "memlock", "cpu", "as", "ports"]
    soft: int | None
    hard: int | None = None
    used: int | None = None
    exempt: bool = False
    needed_by: tuple[str, ...] = ()

    @property
    def left(self) -> int | None:
        """How many more are allowed; None when unlimited, lifted or unknown."""
        return None if self.soft is None or self.used is None or self.exempt else self.soft - self.used

    def text(self) -> str:
        soft, hard = ("unlimited" if value is None else str(value) for value in (self.soft, self.hard))
        used = "" if self.used is None else f", {self.used} used"
        return f"{self.name} {soft} (hard {hard}){used}" + (", lifted by privilege" if self.exempt else "")


class Memory(Fact, frozen=True, kw_only=True):
    """Host memory that new processes can still get, in bytes: the tightest of the machine and the cgroups above."""

    available: int
    total: int

    def text(self) -> str:
        return f"{size(self.available)} of {size(self.total)} available"


class ShmSpace(Fact, frozen=True, kw_only=True):
    """The file system at /dev/shm, in bytes. `error` is the system's text where it cannot be used at all.

    `gpus` counts NVIDIA device nodes beside it. `leftovers` are files of ended NCCL and torch processes that no process
    here maps or has open; None where that could not be found out.
    """

    path: str = "/dev/shm"
    size: int = 0
    free: int = 0
    free_inodes: int | None = None
    device: int = 0
    """st_dev: processes with different ones share no memory."""
    writable: bool = True
    gpus: int = 0
    leftovers: tuple[str, ...] | None = None
    leftover_bytes: int = 0
    error: str = ""

    def text(self) -> str:
        return self.error or f"{size(self.free)} of {size(self.size)} free"


class ExtensionLock(msgspec.Struct, frozen=True, kw_only=True):
    """One `lock` file of torch's extension builder, its age, and who holds it (None: nobody on this machine)."""

    path: str
    age_seconds: float
    holder: int | None = None


class ExtensionCache(Fact, frozen=True, kw_only=True):
    """The folder where torch builds C++ extensions, with the locks in it. `complete` is False where some process of this
    user could not be asked whether it holds one. `file_system` is its type, such as `nfs4` or `ext4`."""

    path: str
    locks: tuple[ExtensionLock, ...] = ()
    complete: bool = True
    file_system: str = ""

    def text(self) -> str:
        return "; ".join(f"{lock.path}, {lock.age_seconds / 60:.0f} min old" for lock in self.locks) or "no lock"
