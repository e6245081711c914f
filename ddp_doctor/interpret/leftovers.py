"""Launch variables that no launcher above this process has set: copied from a job, exported, or inherited from one."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence

from ddp_doctor.facts.launch import Ancestor, Launcher, Leftover, Variable
from ddp_doctor.interpret import Interpreter, launcher as launcher_interpreter
from ddp_doctor.interpret.launcher import given_from_outside, is_set, number
from ddp_doctor.model import Fact, Facts

ONLY_TORCHRUNS = ("TORCHELASTIC_*", "GROUP_*", "ROLE_*")
OF_ENV_TOO = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_*")
OF_SLURM_TASKS = (
    "SLURM_NTASKS*", "SLURM_NPROCS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP*", "SLURM_TASKS_PER_NODE",
)  # fmt: skip
LIGHTNING_IGNORES_JOBS_CALLED = ("bash", "interactive")
OF_LIGHTNINGS_OWN_CLUSTER = ("WORLD_SIZE", "NODE_RANK", "MASTER_ADDR")


def interpret(facts: Facts) -> list[Fact]:
    """One Leftover per launcher that has variables here but no process above; none where the tree cannot be seen."""
    launchers = [found for found in launcher_interpreter.interpret(facts) if isinstance(found, Launcher)]
    found: list[Fact] = []
    variables, started = facts.by_subject(Variable), Facts(launchers).by_subject(Launcher)
    for subject, ancestors in facts.by_subject(Ancestor).items():
        mine = {item.name: item for item in variables.get(subject, ()) if is_set(item)}
        theirs: dict[str, Launcher] = {item.name: item for item in started.get(subject, ())}
        found += _leftovers(mine, theirs, ancestors)
    return found


def _leftovers(
    mine: Mapping[str, Variable], launchers: Mapping[str, Launcher], ancestors: Sequence[Ancestor]
) -> Iterator[Leftover]:
    subject, source = ancestors[0].subject, "environment and process tree"
    torchrun = launchers.get("torchrun")
    if torchrun and torchrun.alive is False:
        agent_store = "TORCHELASTIC_USE_AGENT_STORE" in mine and mine["TORCHELASTIC_USE_AGENT_STORE"].value == "True"
        yield Leftover(
            subject=subject,
            source=source,
            launcher="torchrun",
            names=_matching(mine, (*ONLY_TORCHRUNS, *(() if _ranked_by_hand(mine) else OF_ENV_TOO))),
            effect="every rank, rank 0 too, connects as a client to the store of an agent that is not there, until the timeout"
            if agent_store
            else "programs take themselves for workers of torchrun: Lightning starts no ranks of its own and waits for them",
            stops_any_job=agent_store,
        )
        return
    if any(found.alive for name, found in launchers.items() if name != "kubernetes"):
        return
    slurm = launchers.get("slurm")
    if slurm and slurm.alive is False and not slurm.allocation and (slurm.world_size or 0) > 1:
        job_name = mine["SLURM_JOB_NAME"].value if "SLURM_JOB_NAME" in mine else ""
        if job_name not in LIGHTNING_IGNORES_JOBS_CALLED:
            yield Leftover(
                subject=subject,
                source=source,
                launcher="slurm",
                names=_matching(mine, OF_SLURM_TASKS),
                effect=f"Lightning takes this for one of {slurm.world_size} Slurm tasks, starts no ranks and waits for the "
                "others, which nobody starts",
            )
    mpi = launchers.get("mpi")
    if mpi and mpi.alive is False and (mpi.world_size or 0) > 1:
        yield Leftover(
            subject=subject,
            source=source,
            launcher="mpi",
            names=mpi.variables,
            effect=f"Accelerate and DeepSpeed take rank and size from them and wait for {mpi.world_size} ranks, which "
            "nobody starts",
        )
    yield from _of_lightning(mine, ancestors)


def _ranked_by_hand(mine: Mapping[str, Variable]) -> bool:
    """Whether rank and size cannot be torchrun's, which sets them together with ROLE_RANK."""
    return {"RANK", "WORLD_SIZE"} <= mine.keys() and "ROLE_RANK" not in mine


def _of_lightning(mine: Mapping[str, Variable], ancestors: Sequence[Ancestor]) -> Iterator[Leftover]:
    subject, source = ancestors[0].subject, "environment and process tree"
    on_this_machine = "MASTER_ADDR" not in mine or mine["MASTER_ADDR"].value in ("localhost", "127.0.0.1", "::1", "")
    by_hand = {"RANK", "WORLD_SIZE"} <= mine.keys()
    by_somebody = by_hand or set(OF_LIGHTNINGS_OWN_CLUSTER) <= mine.keys()
    if _is_stray("LOCAL_RANK", 0, mine, ancestors) and not by_somebody:
        yield Leftover(
            subject=subject,
            source=source,
            launcher="lightning",
            names=("LOCAL_RANK",),
            effect="Lightning takes LOCAL_RANK for the sign that something else starts the ranks: it starts none and waits "
            "for them; Accelerate and Transformers take it for a distributed launch without RANK",
        )
    if _is_stray("NODE_RANK", 1, mine, ancestors) and on_this_machine and not by_hand:
        node = number(mine["NODE_RANK"].value)
        yield Leftover(
            subject=subject,
            source=source,
            launcher="lightning",
            names=("NODE_RANK",),
            effect=f"Lightning takes this for node {node} of a job whose node 0 is elsewhere: its ranks count from beyond the "
            "first node (MEMBER: 3/2) and no rank 0 opens the store",
        )


def _is_stray(name: str, least: int, mine: Mapping[str, Variable], ancestors: Sequence[Ancestor]) -> bool:
    value = number(mine[name].value) if name in mine and mine[name].inherited else None
    return value is not None and value >= least and not given_from_outside((name,), ancestors)


def _matching(mine: Mapping[str, Variable], patterns: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in mine if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))


INTERPRETER = Interpreter(
    reads=(
        Variable,
        Ancestor,
    ),
    gives=(Leftover,),
    interpret=interpret,
)
