"""DDP118: settings of this rank contradict each other or do something else than they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.launch import Launcher, Setting, Variable
from ddp_doctor.interpret.launcher import is_set, number
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.launch.rank_config_mismatch_live import from_job
from ddp_doctor_checks.launch.rank_config_mismatch_meeting import from_meeting

GRAVITY = {
    "breaks": (Severity.ERROR, Confidence.LIKELY),
    "ends": (Severity.ERROR, Confidence.CERTAIN),
    "risks": (Severity.WARNING, Confidence.LIKELY),
    "misread": (Severity.WARNING, Confidence.CERTAIN),
    "ignored": (Severity.NOTE, Confidence.CERTAIN),
    "interest": (Severity.NOTE, Confidence.CERTAIN),
}
OWN_NAMES = {
    "slurm": (("RANK", "SLURM_PROCID"), ("LOCAL_RANK", "SLURM_LOCALID")),
    "mpi": (
        ("RANK", "OMPI_COMM_WORLD_RANK"),
        ("RANK", "PMI_RANK"),
        ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("LOCAL_RANK", "MPI_LOCALRANKID"),
    ),
}


class RankConfigMismatch(Check):
    """Each setting has one meaning: rank variables agree, NCCL, Gloo and torch settings are read as written."""

    id, name = "DDP118", "rank-config-mismatch"
    title = "Settings of a rank contradict each other or are not what they seem"
    needs = ((Variable, JobRank),)
    also_reads = (Attendance, Attendee, Launcher, Setting, *communicator.READS)
    acts_at = INIT | {Stage.PYTHON, Stage.FIRST_COLLECTIVE} | {Stage.INITIALIZED}
    explains = ("DDP101", "DDP604")
    told = Told(
        because="some NCCL settings must be alike on all ranks; a variable that only one shell exports does not reach the "
        "others",
        fixes=(
            Fix(
                title="compare the settings of the nodes and set them in one place",
                commands=("env | grep -E '^(NCCL|GLOO)_' | sort | md5sum   # on every node",),
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
        for setting in facts[Setting]:
            severity, confidence = GRAVITY[setting.effect]
            yield self.finding(
                f"{setting.text()} ({setting.source}): {setting.meaning}",
                because=_why(setting),
                evidence=[setting.evidence()],
                fixes=[_remove_or_mend(setting)],
                severity=severity,
                confidence=confidence,
            )
        for launcher in facts[Launcher]:
            yield from self._two_ranks(launcher, facts)

    def _two_ranks(self, launcher: Launcher, facts: Facts) -> Iterator[Finding]:
        mine = {item.name: item for item in facts.of(Variable, launcher.subject) if is_set(item)}
        alive = {found.name for found in facts.of(Launcher, launcher.subject) if found.alive}
        one_rank_per_task = launcher.alive and (launcher.local_world_size or 1) > 1
        if not one_rank_per_task or alive & {"torchrun", "deepspeed", "ray"}:
            return
        for ours, theirs in OWN_NAMES.get(launcher.name, ()):
            if ours in mine and theirs in mine:
                told, real = number(mine[ours].value), number(mine[theirs].value)
                if told is not None and real is not None and told != real:
                    yield self.finding(
                        f"{mine[ours].text()}, but {launcher.name} started this process as {mine[theirs].text()}",
                        because=f"a {ours} exported before the launch is the same in every task: several ranks claim one "
                        "place and the others wait for the places nobody takes",
                        evidence=[mine[ours].evidence(), mine[theirs].evidence()],
                        fixes=[
                            Fix(title="take it from the launcher, in the command each task runs",
                                commands=(f'export {ours}="${theirs}"',)),
                        ],
                        severity=Severity.WARNING,
                        confidence=Confidence.LIKELY,
                    )  # fmt: skip


def _why(setting: Setting) -> str:
    if setting.effect in ("misread", "ignored") and ":" in setting.source:
        return "NCCL trims nothing, and knows no quotes, no export and no comment but at the start of a line"
    return {
        "breaks": "torch makes communicators by itself and never wants this set",
        "ends": "it is checked when torch.distributed starts, so the job ends there",
        "risks": "it is meant for finding the kernel that fails, in a job of one process",
    }.get(setting.effect, "it does not stop a job; it matters for reading logs and for what you expect of it")


def _remove_or_mend(setting: Setting) -> Fix:
    conf = re.fullmatch(r"(.+):(\d+)", setting.source)
    if not conf:
        return Fix(title="remove it", commands=(f"unset {setting.name}",))
    path, line = shlex.quote(conf[1]), conf[2]
    if not setting.mended:
        return Fix(title="remove the line", commands=(f"sed -i {line}d {path}",), needs="write access, job restart")
    command = f"sed -i {shlex.quote(f'{line}c {setting.mended}')} {path}"
    return Fix(
        title=f"write it as NCCL reads it: {setting.mended}", commands=(command,), needs="write access, job restart"
    )
