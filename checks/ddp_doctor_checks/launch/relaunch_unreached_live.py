"""What a running job shows of DDP119: a re-run script that does not reach the call of the process that started it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, jobs
from ddp_doctor.interpret.family import script_of
from ddp_doctor.model import Confidence, Facts, Fix

OUTSIDE = ("user-code", "data", "")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RelaunchUnreached.finding`, one set per process whose re-runs stay behind."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        by_pid = {rank.subject.pid: rank for rank in view.ranks}
        for parent in view.waiting:
            above = processes.get(parent.subject.process)
            if above is None:
                continue
            behind = [
                rank
                for rank in view.ranks
                if (child := processes.get(rank.subject.process)) is not None
                and child.subject.host == above.subject.host
                and child.parent == above.pid
                and runs_again(child, above)
                and _stays_behind(rank)
            ]
            if behind and by_pid:
                yield _finding(parent, behind)


def runs_again(child: Process, above: Process) -> bool:
    """Whether a launcher in one process started the other as a further rank, by its own command line."""
    # the variable that a launcher gives; only the arguments after the script may differ
    ours, theirs = child.set_at_start or {}, above.set_at_start or {}
    return "LOCAL_RANK" in ours and "LOCAL_RANK" not in theirs and _script(child) == _script(above) != ""


def _script(process: Process) -> str:
    """The file that a process runs, or the module: Lightning writes the file with its whole path."""
    words = script_of(process)
    if words[:1] == ("-m",):
        return " ".join(words[:2])
    return posixpath.normpath(posixpath.join(process.cwd, words[0])) if words else ""


def _stays_behind(rank: JobRank) -> bool:
    return not rank.beyond_init and rank.doing in OUTSIDE and rank.state == "waiting" and rank.has_stack


def _finding(parent: JobRank, behind: list[JobRank]) -> dict[str, Any]:
    in_thread = "" if parent.thread in (None, parent.subject.pid) else f", in thread {parent.thread_name!r}"
    stands = behind[0].where or "its own code"
    return {
        "summary": f"the script that was run again for rank {behind[0].rank} never reaches training: it waits at {stands}",
        "because": f"PID {parent.subject.pid} started the other ranks by running its own command line again; what led it "
        f"to training{in_thread} happened once (a request, a message, input), so the new process waits for it in vain",
        "evidence": [
            parent.evidence(f"PID {parent.subject.pid}: {parent.text()}"),
            *(rank.evidence(f"PID {rank.subject.pid}, the same script: {rank.text()}") for rank in behind[:4]),
        ],
        "fixes": [
            Fix(
                title="start training from the top level of a script of its own, and let the service start that",
                commands=(f"torchrun --standalone --nproc-per-node={parent.world_size or 2} train.py",),
                needs="code change, job restart",
            ),
            Fix(
                title="or have Lightning start its ranks from this process instead of from the command line",
                commands=(f'Trainer(strategy="ddp_spawn", devices={parent.world_size or 2})',),
                needs="code change, job restart",
            ),
        ],
        "confidence": Confidence.CERTAIN if all(rank.rank is not None for rank in behind) else Confidence.LIKELY,
        "ranks": [rank.rank for rank in behind if rank.rank is not None],
    }
