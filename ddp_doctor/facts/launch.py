"""What a launcher left in the environment and the process tree."""

from __future__ import annotations

from ddp_doctor.model import Fact


class Variable(Fact, frozen=True, kw_only=True):
    """One environment variable or NCCL conf-file entry that changes how a job starts. `source` says where it is set.

    `in_effect` is False for a conf-file entry that something of higher precedence overrides.
    """

    name: str
    value: str
    in_effect: bool = True

    def text(self) -> str:
        return f"{self.name}={self.value}"


class Ancestor(Fact, frozen=True, kw_only=True):
    """One process above the examined one, nearest first (`depth` 1 is the parent)."""

    depth: int
    command: str
    """The kernel's short name (15 bytes), such as `pt_elastic` or `slurmstepd`."""
    arguments: tuple[str, ...] = ()

    def text(self) -> str:
        return " ".join(self.arguments) or self.command


class Launcher(Fact, frozen=True, kw_only=True):
    """A launcher whose variables are here: torchrun, slurm, mpi, lightning, accelerate, deepspeed, ray, kubernetes.

    `alive` says whether a process of it is an ancestor; None where that cannot be seen from here. `rank`, `local_rank`,
    `world_size` and `local_world_size` are what its own variables say, None where it does not say or it is malformed.
    """

    name: str
    variables: tuple[str, ...]
    alive: bool | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None

    def text(self) -> str:
        return f"{self.name}: {', '.join(self.variables)}"
