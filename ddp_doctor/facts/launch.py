"""What a launcher left in the environment and the process tree."""

from __future__ import annotations

from typing import Literal

from ddp_doctor.model import Fact

LauncherName = Literal[
    "torchrun", "accelerate", "deepspeed", "ray", "lightning", "slurm", "mpi", "kubernetes", "by hand"
]


class Variable(Fact, frozen=True, kw_only=True):
    """One environment variable or NCCL conf-file entry that changes how a job starts. `source` says where it is set.

    `name` and `value` of a conf-file entry are what NCCL makes of the line, blanks and quotes included.
    `in_effect` is False for a conf-file entry that something of higher precedence overrides or whose name nobody reads.
    `inherited` is False where the process set the variable itself after its start, as a forking launcher does.
    """

    name: str
    value: str
    in_effect: bool = True
    inherited: bool = True

    def text(self) -> str:
        return f"{self.name}={self.value}"


class Ancestor(Fact, frozen=True, kw_only=True):
    """One process above the examined one, nearest first: `depth` 0 is the examined process, 1 its parent.

    `variables` names the launch variables it was started with; None where its environment cannot be read.
    `contained` says that what started this tree lies outside the PID namespace or virtual machine.
    """

    depth: int
    pid: int = 0
    command: str
    """The kernel's short name (15 bytes), such as `pt_elastic` or `slurmstepd`."""
    arguments: tuple[str, ...] = ()
    """The first of its command line, cut: enough to tell a launcher, too little to hold its secrets."""
    variables: tuple[str, ...] | None = None
    contained: bool = False

    def text(self) -> str:
        return " ".join(self.arguments) or self.command


class Launcher(Fact, frozen=True, kw_only=True):
    """A launcher whose variables are here. `by hand` stands for RANK and WORLD_SIZE that no known launcher set.

    `alive` says whether a process of it that starts ranks is an ancestor; None where that cannot be seen from here.
    `allocation` marks a shell inside its allocation or pod (sbatch, salloc, kubectl exec): the variables are rightly
    there, but this process is no rank. `rank`, `local_rank`, `world_size` and `local_world_size` are what its own
    variables say, None where they do not say or are malformed.
    """

    name: LauncherName
    variables: tuple[str, ...]
    alive: bool | None = None
    allocation: bool = False
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None

    def text(self) -> str:
        return f"{self.name}: {', '.join(self.variables)}"


class Setting(Fact, frozen=True, kw_only=True):
    """A variable or conf-file entry that does something else than its writer meant. `source` says where it is set.

    `effect`: `breaks` the job's start, `ends` it with an exception, `risks` a hang, is `misread` as another value,
    `ignored` without a word, or is merely of `interest` when reading a log. `meaning` says what really happens.
    `mended` is the conf-file line as it should read, empty where the entry has to go.
    """

    name: str
    value: str
    effect: Literal["breaks", "ends", "risks", "misread", "ignored", "interest"]
    meaning: str
    mended: str = ""

    def text(self) -> str:
        return f"{self.name}={self.value}"


class Leftover(Fact, frozen=True, kw_only=True):
    """Variables of a launcher that did not start this process. `effect` is what a job started from here makes of them.

    `stops_any_job` says that every init_process_group() from here waits, not just that of some framework.
    """

    launcher: LauncherName
    names: tuple[str, ...]
    effect: str
    stops_any_job: bool = False

    def text(self) -> str:
        return f"{self.launcher}: {', '.join(self.names)}"
