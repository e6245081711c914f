"""DDP102: rank variables are malformed, impossible or set in part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddp_doctor.facts.launch import Launcher, Variable
from ddp_doctor.interpret.launcher import is_set, number
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

LEAST = {"WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "GROUP_WORLD_SIZE": 1, "ROLE_WORLD_SIZE": 1,
         "RANK": 0, "LOCAL_RANK": -1, "NODE_RANK": 0, "GROUP_RANK": 0, "ROLE_RANK": 0, "PET_NODE_RANK": 0,
         "SLURM_NTASKS": 1, "SLURM_PROCID": 0, "SLURM_LOCALID": 0, "SLURM_NODEID": 0,
         "OMPI_COMM_WORLD_SIZE": 1, "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_LOCAL_RANK": 0}  # fmt: skip
BELOW = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("GROUP_RANK", "GROUP_WORLD_SIZE"),
         ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))  # fmt: skip
OF_ONE_LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


class NoLauncherEnv(Check):
    """RANK and WORLD_SIZE are numbers that fit together, or a launcher is still to set them."""

    id, name = "DDP102", "no-launcher-env"
    title = "Rank variables are malformed, impossible or incomplete"
    needs = (Variable,)
    also_reads = (Launcher,)
    acts_at = INIT | {Stage.NOT_STARTED, Stage.PYTHON}
    told = Told(
        because="init_method env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which a launcher sets; without "
        "one nobody does",
        fixes=(
            Fix(
                title="start the script with a launcher",
                commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                needs="job restart",
            ),
            Fix(
                title="under srun or mpirun, hand their numbers over before init_process_group",
                commands=(
                    "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS   # in the script of srun",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for subject in facts.by_subject(Variable):
            mine = {found.name: found for found in facts.of(Variable, subject) if is_set(found)}
            bad = [mine[name] for name, least in LEAST.items() if name in mine and _is_bad(mine[name].value, least)]
            for variable in bad:
                at_least = LEAST[variable.name]
                yield self.finding(
                    f"{variable.name} is {variable.value!r}: it must be a whole number of at least {max(at_least, 0)}",
                    because="torch and the launchers read it with int(), so the job ends before its ranks can meet",
                    evidence=[variable.evidence()],
                    fixes=[_unset(mine, variable.name)],
                )
            for rank, world in BELOW:
                if not {rank, world} <= mine.keys() or mine[rank] in bad or mine[world] in bad:
                    continue
                if (number(mine[rank].value) or 0) >= (number(mine[world].value) or 1):
                    yield self.finding(
                        f"{mine[rank].text()} does not exist in a job of {mine[world].text()}: ranks count from 0",
                        because="a rank outside the world is refused, and the rank it should be is missed by all others",
                        evidence=[mine[rank].evidence(), mine[world].evidence()],
                        fixes=[_unset(mine, rank, world)],
                    )
            yield from self._in_part(mine, {launcher.name for launcher in facts[Launcher]})

    def _in_part(self, mine: Mapping[str, Variable], launchers: set[str]) -> Iterator[Finding]:
        if "RANK" in mine and "WORLD_SIZE" not in mine and not _is_bad(mine["RANK"].value, 0):
            yield self.finding(
                f"{mine['RANK'].text()} is set but WORLD_SIZE is not",
                because="init_process_group() needs both and ends with a ValueError; torchrun or srun set all of them",
                evidence=[mine["RANK"].evidence()],
                fixes=[_unset(mine, "RANK")],
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
            )
        elif "WORLD_SIZE" in mine and "RANK" not in mine and "LOCAL_RANK" not in mine and not launchers:
            yield self.finding(
                f"{mine['WORLD_SIZE'].text()} is set but RANK is not",
                because="right for a script that sets RANK itself (mp.spawn); any other ends with a ValueError",
                evidence=[mine["WORLD_SIZE"].evidence()],
                fixes=[_unset(mine, "WORLD_SIZE")],
                severity=Severity.NOTE,
            )


def _is_bad(value: str, least: int) -> bool:
    found = number(value)
    return found is None or found < least


def _unset(mine: Mapping[str, Variable], *names: str) -> Fix:
    every = dict.fromkeys((*names, *(name for name in OF_ONE_LAUNCH if name in mine)))
    return Fix(
        title="remove them; a launcher sets them for each rank: torchrun --nproc-per-node=N train.py",
        commands=(f"unset {' '.join(every)}",),
    )
