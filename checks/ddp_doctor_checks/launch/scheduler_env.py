"""DDP110: variables of a launcher that is not there, or one launcher inside another."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.launch import Ancestor, Launcher, Leftover, Variable
from ddp_doctor.interpret.launcher import is_set, number, of_launcher
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.launch.scheduler_env_live import from_job
from ddp_doctor_checks.launch.scheduler_env_origin import where_they_came_in


class SchedulerEnv(Check):
    """What the launch variables say about who started this process agrees with who did."""

    id, name = "DDP110", "scheduler-env"
    title = "Launch variables and the real launcher disagree"
    needs = ((Variable, JobRank), (Ancestor, JobRank))
    also_reads = (Launcher, Leftover)
    acts_at = INIT | {Stage.NOT_STARTED, Stage.PYTHON}
    explains = ("DDP101",)
    told = Told(
        because="the scheduler and the launcher both decide how many ranks run where: either every task starts all ranks, "
        "or too few tasks run",
        fixes=(
            Fix(
                title="one launcher per node",
                commands=(
                    "srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 \\",
                    "    --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 --rdzv-id=$SLURM_JOB_ID train.py",
                ),
                needs="job restart",
            ),
            Fix(
                title="or one task per GPU and no second launcher",
                commands=("srun --ntasks-per-node=4 python train.py",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for subject in facts.by_subject(Variable):
            mine = {found.name: found for found in facts.of(Variable, subject) if is_set(found)}
            launchers: dict[str, Launcher] = {found.name: found for found in facts.of(Launcher, subject)}
            ancestors = list(facts.of(Ancestor, subject))
            for leftover in facts.of(Leftover, subject):
                yield self._left_over(leftover, mine, ancestors)
            yield from self._in_allocation(mine, launchers, ancestors)
            yield from self._twice(mine, launchers, ancestors)

    def _left_over(self, leftover: Leftover, mine: Mapping[str, Variable], ancestors: Sequence[Ancestor]) -> Finding:
        names = leftover.names
        who = "launcher" if leftover.launcher == "lightning" else leftover.launcher
        shown = ", ".join(mine[name].text() for name in names[:3])
        return self.finding(
            f"{shown} {'are' if len(names) > 1 else 'is'} left over: no {who} started this process",
            because=leftover.effect,
            evidence=[*(mine[name].evidence() for name in names), *where_they_came_in(names[0], ancestors)],
            fixes=[
                Fix(title="remove the leftovers", commands=(f"unset {' '.join(names)}",), needs="nothing"),
                Fix(
                    title="or start without them",
                    commands=(f"env {' '.join(f'-u {shlex.quote(name)}' for name in names)} python train.py",),
                    needs="job restart",
                ),
            ],
            severity=Severity.ERROR if leftover.stops_any_job else Severity.WARNING,
            confidence=Confidence.LIKELY,
        )

    def _in_allocation(
        self, mine: Mapping[str, Variable], launchers: Mapping[str, Launcher], ancestors: Sequence[Ancestor]
    ) -> Iterator[Finding]:
        slurm, tasks = launchers.get("slurm"), mine.get("SLURM_NTASKS")
        if slurm and slurm.allocation and tasks and (number(tasks.value) or 0) > 1:
            yield self.finding(
                f"this is the shell of a Slurm allocation, not one of its {tasks.value} tasks",
                because="srun starts the tasks; Lightning started here with plain python takes itself for task 0 and "
                f"waits for {tasks.value}",
                evidence=[
                    tasks.evidence(),
                    *(found.evidence() for found in ancestors if found.command == "slurmstepd"),
                ],
                fixes=[Fix(title="start the ranks with srun", commands=("srun python train.py",))],
                severity=Severity.NOTE,
            )

    def _twice(
        self, mine: Mapping[str, Variable], launchers: Mapping[str, Launcher], ancestors: Sequence[Ancestor]
    ) -> Iterator[Finding]:
        """torchrun in every task of a node: each agent wants the same port and takes itself for the node."""
        slurm, agents = launchers.get("slurm"), of_launcher("torchrun", ancestors)
        steps = of_launcher("slurm", ancestors)
        if not (slurm and slurm.alive and agents and steps and agents[0].depth < steps[0].depth):
            return
        tasks_here = slurm.local_world_size or 0
        agents_wanted = number(mine["GROUP_WORLD_SIZE"].value) if "GROUP_WORLD_SIZE" in mine else None
        run_id = mine["TORCHELASTIC_RUN_ID"].value if "TORCHELASTIC_RUN_ID" in mine else ""
        job = mine["SLURM_JOB_ID"].value if "SLURM_JOB_ID" in mine else None
        if tasks_here < 2 or agents_wanted is None or (slurm.world_size or 0) <= agents_wanted:
            return
        # with a run id of its own (--standalone) each task is a job by itself, as in a sweep
        one_job = run_id in ("none", job)
        names = ("SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "GROUP_WORLD_SIZE",
                 "TORCHELASTIC_RUN_ID")  # fmt: skip
        yield self.finding(
            f"srun started {tasks_here} tasks on this node and each runs its own torchrun, which expects {agents_wanted} "
            f"agent{'s' if agents_wanted != 1 else ''} in all",
            because="both start ranks: the agents of one node collide on the port, or surplus agents wait outside",
            evidence=[
                *(mine[name].evidence() for name in names if name in mine),
                agents[0].evidence(),
                steps[0].evidence(),
            ],
            fixes=[
                Fix(
                    title="let srun start one torchrun per node",
                    commands=("srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=gpu "
                              "--rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID "
                              "--rdzv-endpoint=$(scontrol show hostnames | head -n1):29500 train.py",),
                )
            ],
            severity=Severity.ERROR if one_job else Severity.NOTE,
            confidence=Confidence.LIKELY if one_job else Confidence.POSSIBLE,
        )  # fmt: skip
