"""DDP117: WORLD_SIZE is not the number of ranks that the launcher started."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.launch import Launcher, Variable
from ddp_doctor.interpret.launcher import is_set, number
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.launch.world_size_mismatch_live import from_job
from ddp_doctor_checks.launch.world_size_mismatch_meeting import from_meeting

SIZE_OF = {
    "slurm": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
    "mpi": ("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"),
}


class WorldSizeMismatch(Check):
    """WORLD_SIZE equals the number of tasks of the launcher that starts one rank per task."""

    id, name = "DDP117", "world-size-mismatch"
    title = "WORLD_SIZE differs from the number of ranks started"
    needs = ((Variable, JobRank, Attendee),)
    also_reads = (Attendance, Launcher, *communicator.READS)
    acts_at = INIT | {Stage.INITIALIZED, Stage.FIRST_COLLECTIVE}
    explains = ("DDP101", "DDP604")
    told = Told(
        because="the ranks were started with different world sizes, and each waits for a number of others that never "
        "comes",
        fixes=(
            Fix(
                title="start all ranks with one launcher and one total",
                commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for met in from_meeting(facts):
            yield self.finding(**met)
        yield from communicator.findings(self, facts)
        for launcher in facts[Launcher]:
            mine = {item.name: item for item in facts.of(Variable, launcher.subject) if is_set(item)}
            own = next((mine[name] for name in SIZE_OF.get(launcher.name, ()) if name in mine), None)
            others = {found.name for found in facts.of(Launcher, launcher.subject) if found.alive}
            started, per_node = launcher.world_size, launcher.local_world_size
            world = number(mine["WORLD_SIZE"].value) if "WORLD_SIZE" in mine else None
            if (
                not launcher.alive
                or own is None
                or not started
                or not world
                or others & {"torchrun", "deepspeed", "ray"}
            ):
                continue
            # one task per node that spawns its ranks itself has WORLD_SIZE = nodes * ranks
            spawns_itself = (per_node or 1) == 1 and world % started == 0
            if world == started or started == 1 or spawns_itself:
                continue
            missing = world - started
            yield self.finding(
                f"{mine['WORLD_SIZE'].text()}, but {launcher.name} started {started} ranks ({own.text()})",
                because=f"the {started} ranks wait for {missing} more that nobody starts"
                if missing > 0
                else f"ranks {world} to {started - 1} lie outside the world and are refused, or join twice",
                evidence=[mine["WORLD_SIZE"].evidence(), own.evidence()],
                fixes=[
                    Fix(title="take the size from the launcher, in the command each task runs",
                        commands=(f'export WORLD_SIZE="${own.name}"',)),
                ],
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
            )  # fmt: skip
