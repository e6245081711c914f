"""What a running job shows of DDP101: ranks that are waited for and that no process here is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, JobView, jobs, numbers
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `MissingRanks.finding`, one set per job."""
    for view in jobs(facts):
        yield from _nodes(view)
        missed = {wait.rank for rank in view.waiting for wait in rank.waits_for} & set(view.job.missing)
        waiting = [rank for rank in view.waiting if {wait.rank for wait in rank.waits_for} & missed]
        if not missed or not waiting:
            continue
        missing = sorted(each for each in missed if each is not None)
        here = numbers(view.job.ranks)
        # one of them may be a process whose rank could not be read
        nameless = any(rank.rank is None and rank.state != "exited" for rank in view.ranks)
        died = [rank for rank in view.others if rank.state == "exited"]
        yield {
            "summary": f"{numbers(missing)} of world size {view.job.world_size} "
            f"{'is' if len(missing) == 1 else 'are'} not running on {_looked_at(view)}; {here} "
            f"{'waits' if len(view.job.ranks) == 1 else 'wait'} for {'it' if len(missing) == 1 else 'them'}",
            "because": (
                "the communicator is complete only when every rank has come, and NCCL waits without a time-out"
                if all(rank.doing == "communicator" for rank in waiting)
                else "init_process_group returns only when every rank has joined"
            )
            + (
                "; they all belong on this node, so nothing else will start them"
                if view.job.complete_here
                else "; if it belongs on another node, the fault is there, or between the nodes"
            ),
            "evidence": [*(rank.evidence() for rank in waiting[:4]), *(rank.evidence() for rank in died[:2])],
            "fixes": _fixes(view, missing, waiting),
            "confidence": Confidence.POSSIBLE if nameless else Confidence.LIKELY,
            "ranks": missing,
        }


def _looked_at(view: JobView) -> str:
    *others, last = view.job.hosts or ("",)
    return f"{', '.join(others)} or {last}" if others else "this node"


def _nodes(view: JobView) -> Iterator[dict[str, Any]]:
    """torchrun's agents that wait for other nodes, before there is any rank."""
    agents = [each for each in view.others if each.doing == "waiting-for-nodes"]
    if not agents or view.ranks:
        return
    yield {
        "summary": f"torchrun (PID {agents[0].subject.pid}) waits for other nodes; no rank is started before they join",
        "because": "all nodes of --nnodes have to reach one rendezvous; it ends after 10 min (c10d) or 15 min (static), "
        "with a text that names no node",
        "evidence": [agent.evidence(f"{agent.command}: {agent.call}") for agent in agents[:4]],
        "fixes": [
            Fix(
                title="start torchrun on the missing nodes with the same --nnodes, --rdzv-id and endpoint; see from there "
                "whether they reach it",
                commands=(f"ddp-doctor run  # on each node, MASTER_ADDR={agents[0].master_address or 'NODE0'}",),
                needs="the other nodes",
            ),
            Fix(
                title="or, if this is the only node",
                commands=("torchrun --standalone --nproc-per-node=N train.py",),
                needs="job restart",
            ),
        ],
        "confidence": Confidence.LIKELY,
        "ranks": [],
    }


def _fixes(view: JobView, missing: list[int], waiting: list[JobRank]) -> list[Fix]:
    first = waiting[0]
    size = view.job.world_size or len(view.ranks) + len(missing)
    script = first.file or "train.py"
    if view.job.complete_here:
        return [
            Fix(
                title="see why it ended, or start all ranks at once",
                commands=(f"torchrun --standalone --nproc-per-node={size} {script}",),
                needs="job restart",
            )
        ]
    return [
        Fix(
            title=f"look for {numbers(missing)} on the other nodes",
            commands=("ddp-doctor attach --all   # there",),
            needs="the other nodes",
        ),
        Fix(
            title="if there is only this node, WORLD_SIZE is too large: start as many ranks as it says",
            commands=(f"torchrun --standalone --nproc-per-node={size} {script}",),
            needs="job restart",
        ),
    ]
