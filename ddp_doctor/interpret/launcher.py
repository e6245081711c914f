"""Which launchers' variables are here, what they say, and whether a process of theirs really stands above."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath

from ddp_doctor.facts.launch import Ancestor, Launcher, LauncherName, Variable
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts, Subject

MARKS: Mapping[LauncherName, tuple[str, ...]] = {
    "torchrun": ("TORCHELASTIC_*", "GROUP_*", "ROLE_*"),
    "accelerate": ("ACCELERATE_*",),
    "deepspeed": ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE"),
    "ray": ("RAY_*",),
    "lightning": ("PL_*", "LT_*"),
    "slurm": ("SLURM_*",),
    "mpi": ("OMPI_COMM_WORLD_*", "PMI_*", "PMIX_RANK", "MV2_COMM_WORLD_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "kubernetes": ("PET_*", "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "JOBSET_*"),
}
OWN_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
RANK_NAMES: Mapping[LauncherName, tuple[tuple[str, ...], ...]] = {
    # rank, local rank, world size, local world size: the first that is there counts
    "slurm": (("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), ()),
    "mpi": (
        ("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    ),
}
PROGRAMS: Mapping[LauncherName, tuple[str, ...]] = {
    # what runs torch's elastic agent; all but the first three do so inside their own process
    "torchrun": (
        "torchrun", "torch.distributed.run", "torch.distributed.launch",
        "accelerate", "accelerate-launch", "accelerate.commands.launch", "fabric", "lightning", "deepspeed", "torchx",
    ),
    "accelerate": ("accelerate", "accelerate-launch", "accelerate.commands.launch"),
    "deepspeed": ("deepspeed", "ds", "deepspeed.launcher.launch", "deepspeed.launcher.runner"),
    "ray": ("raylet", "ray"),
    "slurm": ("slurmstepd",),
    "mpi": (
        "mpirun", "mpiexec", "mpiexec.hydra", "mpirun_rsh", "mpispawn", "orterun", "orted", "prterun", "prted", "prte",
        "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy", "palsd", "jsrun", "jsmd", "flux-shell",
    ),
}  # fmt: skip
ALLOCATION_STEPS = ("batch", "interactive", "extern")
FIRST_RESERVED_STEP = 0xFFFFFFF0


def interpret(facts: Facts) -> list[Fact]:
    """One Launcher per launcher whose variables are here and per examined process."""
    ancestors = facts.by_subject(Ancestor)
    found: list[Fact] = []
    for subject, variables in facts.by_subject(Variable).items():
        own = {variable.name: variable for variable in variables if is_set(variable)}
        found += _launchers(subject, own, ancestors.get(subject, ()))
    return found


def started_by(facts: Facts) -> Launcher | None:
    """The launcher that started the examined process as one of its ranks; None where nobody is to be waited for.

    Variables of a batch shell or `kubectl exec`, leftovers, and malformed or impossible ranks give None.
    """
    launchers = [launcher for launcher in interpret(facts) if isinstance(launcher, Launcher)]
    for launcher in launchers:
        by_hand = launcher.name == "by hand"
        if launcher.rank is None or launcher.world_size is None or not (launcher.alive or by_hand):
            continue
        if 0 <= launcher.rank < launcher.world_size:
            return launcher
    return None


@lru_cache(maxsize=4096)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return name in patterns or any(each.endswith("*") and name.startswith(each[:-1]) for each in patterns)


def is_set(variable: Variable) -> bool:
    """Whether it comes from an environment, not from a conf file that only NCCL reads."""
    return ":" not in variable.source


def number(text: str | None) -> int | None:
    """The number as Python's int() reads it, which is what torch and the launchers use; None where it would raise."""
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def tasks_per_node(text: str) -> tuple[int, ...]:
    """`4(x2),3` -> (4, 4, 3), as Slurm writes SLURM_TASKS_PER_NODE; empty where it is written otherwise."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,5})\))?", part.strip())
        if not found:
            return ()
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


def program(ancestor: Ancestor) -> str:
    """What a process runs: the module or script of a Python, else the name of the program itself."""
    arguments = [argument for argument in ancestor.arguments if argument]
    if not arguments:
        return ancestor.command
    name = PurePath(arguments[0]).name
    if not re.fullmatch(r"(python|pypy)[\d.]*", name):
        return name
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-m":
            return next(rest, name)
        if argument in ("-X", "-W"):
            next(rest, None)
        elif not argument.startswith("-"):
            return PurePath(argument).name
    return name


def of_launcher(name: LauncherName, ancestors: Iterable[Ancestor]) -> list[Ancestor]:
    """The processes of that launcher that start ranks, nearest first."""
    return [ancestor for ancestor in ancestors if ancestor.depth > 0 and _is_of(name, ancestor, _self(ancestors))]


def given_from_outside(names: Iterable[str], ancestors: Sequence[Ancestor]) -> bool:
    """Whether the container or virtual machine was started with these variables, so that who set them is out of sight."""
    if not any(ancestor.contained for ancestor in ancestors):
        return False
    readable = [ancestor.variables for ancestor in ancestors if ancestor.depth > 0 and ancestor.variables is not None]
    return not readable or set(names) <= set(readable[-1])


def _self(ancestors: Iterable[Ancestor]) -> Ancestor | None:
    return next((ancestor for ancestor in ancestors if ancestor.depth == 0), None)


def _is_of(name: LauncherName, ancestor: Ancestor, examined: Ancestor | None) -> bool:
    if name == "slurm":
        return _is_slurm(ancestor) and not _is_allocation_step(ancestor)
    if name == "lightning":
        # its children are the same command again, started by rank 0
        again = bool(examined and examined.arguments) and ancestor.arguments == getattr(examined, "arguments", ())
        return ancestor.depth == 1 and again and len(ancestor.arguments) > 1
    if name == "torchrun" and ancestor.command.startswith("pt_elastic"):
        return True
    return ancestor.command in PROGRAMS.get(name, ()) or program(ancestor) in PROGRAMS.get(name, ())


def _is_slurm(ancestor: Ancestor) -> bool:
    return ancestor.command == "slurmstepd" or program(ancestor).startswith("slurmstepd")


def _is_allocation_step(ancestor: Ancestor) -> bool:
    # slurmstepd titles itself `slurmstepd: [4711.batch]` or `[4711.0]`
    title = re.search(r"\[[^\]]*\.(\w+)\]", " ".join(ancestor.arguments))
    return title is not None and title[1] in ALLOCATION_STEPS


def _launchers(
    subject: Subject, variables: Mapping[str, Variable], ancestors: Sequence[Ancestor]
) -> Iterable[Launcher]:
    claimed = False
    for name, patterns in MARKS.items():
        own = tuple(found for found in variables if _matches(found, patterns))
        if name == "lightning" and not own and "LOCAL_RANK" in variables and "RANK" not in variables:
            own = tuple(found for found in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE") if found in variables)
        if not own or (name == "torchrun" and not any(found.startswith("TORCHELASTIC_") for found in own)):
            # torchrun always sets those; GROUP_RANK alone is somebody's own, as in a launch by hand
            continue
        alive = _alive(name, own, variables, ancestors)
        allocation = _in_allocation(name, variables, ancestors)
        if name == "slurm" and allocation:
            alive = False
        values = _values(name, variables)
        if name not in RANK_NAMES:
            # RANK belongs to the nearest launcher that is really there
            if claimed or (name in ("accelerate", "lightning", "ray", "kubernetes") and not alive):
                values = (None, None, None, None)
            elif values[0] is not None:
                claimed = True
        yield Launcher(
            subject=subject,
            source="environment and process tree",
            name=name,
            variables=own,
            alive=alive,
            allocation=allocation,
            rank=values[0],
            local_rank=values[1],
            world_size=values[2],
            local_world_size=values[3],
        )
    if not claimed and {"RANK", "WORLD_SIZE"} <= variables.keys() and not _in_pod_shell(variables, ancestors):
        rank, local_rank, world_size, local_world_size = _values("by hand", variables)
        yield Launcher(
            subject=subject,
            source="environment",
            name="by hand",
            variables=tuple(name for name in OWN_RANKS if name in variables),
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            local_world_size=local_world_size,
        )


def _values(name: LauncherName, variables: Mapping[str, Variable]) -> tuple[int | None, ...]:
    """Rank, local rank, world size and local world size as this launcher's variables give them."""
    groups = RANK_NAMES.get(name, (("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")))
    values = [number(next((variables[found].value for found in group if found in variables), None)) for group in groups]
    if name == "slurm":
        values[3] = _slurm_local_world_size(variables)
    return tuple(values)


def _slurm_local_world_size(variables: Mapping[str, Variable]) -> int | None:
    for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
        if name in variables:
            counts = tasks_per_node(variables[name].value)
            node = number(variables["SLURM_NODEID"].value) if "SLURM_NODEID" in variables else 0
            return counts[node] if node is not None and 0 <= node < len(counts) else None
    return None


def _alive(
    name: LauncherName, own: Sequence[str], variables: Mapping[str, Variable], ancestors: Sequence[Ancestor]
) -> bool | None:
    if not ancestors:
        return None
    if of_launcher(name, ancestors):
        return True
    examined = _self(ancestors)
    if name == "ray" and examined and any(argument.startswith("ray::") for argument in examined.arguments):
        return True
    if name == "mpi" and of_launcher("slurm", ancestors):
        return True  # srun --mpi sets PMI variables itself
    if name == "kubernetes":
        top = max(ancestors, key=lambda ancestor: ancestor.depth)
        return top.contained and top.pid == 1
    if any(not variables[found].inherited for found in own):
        # torch's elastic launcher sets its variables in the child it forked; anything else may be the program itself
        return True if name == "torchrun" else None
    if not given_from_outside(own, ancestors):
        return False
    # a container that a task of srun or mpirun is, as opposed to a shell that somebody opened in one
    top = max(ancestors, key=lambda ancestor: ancestor.depth)
    is_the_task = name in ("slurm", "mpi") and top.pid == 1 and set(own) <= set(top.variables or ())
    return True if is_the_task else None


def _in_allocation(name: LauncherName, variables: Mapping[str, Variable], ancestors: Sequence[Ancestor]) -> bool:
    if name == "kubernetes":
        return _in_pod_shell(variables, ancestors)
    if name != "slurm":
        return False
    step = number(variables["SLURM_STEP_ID"].value) if "SLURM_STEP_ID" in variables else None
    if step is not None and step >= FIRST_RESERVED_STEP:
        return True
    steps = [ancestor for ancestor in ancestors if _is_slurm(ancestor)]
    if steps:
        return _is_allocation_step(steps[0]) or step is None
    return any(ancestor.command == "salloc" or program(ancestor) == "salloc" for ancestor in ancestors)


def _in_pod_shell(variables: Mapping[str, Variable], ancestors: Sequence[Ancestor]) -> bool:
    """Whether this is `kubectl exec` or `docker exec`: the tree above ends in the container, but not at its PID 1."""
    if not ancestors:
        return False
    top = max(ancestors, key=lambda ancestor: ancestor.depth)
    return top.contained and top.pid != 1 and "RANK" in (top.variables or ())


INTERPRETER = Interpreter(
    reads=(
        Variable,
        Ancestor,
    ),
    gives=(Launcher,),
    interpret=interpret,
)
