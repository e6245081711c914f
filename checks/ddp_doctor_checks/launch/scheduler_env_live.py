"""What a running job shows of DDP110: variables of torchrun's workers in a job that torchrun did not start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import Listener, Process, jobs
from ddp_doctor.model import Confidence, Facts, Fix

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `SchedulerEnv.finding`: every rank waits for a store that only an agent would open."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        stuck = [
            rank
            for rank in view.ranks
            if rank.doing in ("refused", "no-answer")
            and (process := processes.get(rank.subject.process)) is not None
            and process.variables.get(AGENT_STORE) == "True"
        ]
        ports = {rank.master_port for rank in stuck}
        if not stuck or view.job.launcher or any(each.port in ports for each in facts[Listener]):
            continue
        if not any(rank.rank == 0 for rank in stuck):
            continue
        yield {
            "summary": f"{AGENT_STORE}=True is left over from torchrun: no torchrun is above these ranks",
            "because": "with it even rank 0 only connects, to a store that torchrun's agent would host; nobody opens one, so "
            "all ranks are refused until their timeouts",
            "evidence": [
                rank.evidence(f"{AGENT_STORE}=True, nothing listens on {rank.master_port}: {rank.text()}")
                for rank in stuck[:4]
            ],
            "fixes": [
                Fix(
                    title="start the job without torchrun's variables",
                    commands=(
                        "env $(env | grep -oE '^(TORCHELASTIC_|GROUP_|ROLE_)[^=]*' | sed 's/^/-u /') python train.py",
                    ),
                    needs="job restart",
                )
            ],
            "confidence": Confidence.CERTAIN,
            "ranks": [rank.rank for rank in stuck if rank.rank is not None],
        }
