"""What a running job shows of DDP206: ranks that meet in different files, or in one that a dead run left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import FileStoreState, JobRank, JobView, jobs
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `FileStore.finding`, at most one set per job."""
    files = {state.path: state for state in facts[FileStoreState]}
    for view in jobs(facts):
        users = [rank for rank in view.ranks if rank.init_method.startswith("file://")]
        paths = sorted({rank.init_method[len("file://") :] for rank in users})
        if not users or not view.waiting:
            continue
        if len(paths) > 1:
            yield _finding(
                users,
                f"the ranks meet in different files: {', '.join(paths)}",
                "each rank sees only what those with the same file write, so each waits for the others until its timeout",
                [],
                Fix(
                    title="give every rank one new file",
                    commands=('init_method="file:///shared/new-file"',),
                    needs="code change",
                ),
                Confidence.CERTAIN,
            )
            continue
        state = files.get(paths[0])
        if state is not None and state.exists and _is_stale(state, view):
            yield _finding(
                users,
                f"the rendezvous file {paths[0]} holds keys of an earlier run",
                "ranks read addresses of processes that are gone and connect to nobody; torch removes the file only "
                "when all ranks end well",
                [state],
                Fix(title="remove it before each start", commands=(f"rm -f {paths[0]}",), needs="job restart"),
                Confidence.LIKELY,
            )


def _is_stale(state: FileStoreState, view: JobView) -> bool:
    """More addresses than one run writes, or a file that is older than every rank."""
    addresses = {key: times for key, times in state.written.items() if "/cpu//" in key}
    oldest = max((rank.since_s or 0.0 for rank in view.ranks), default=0.0)
    older = state.age_s is not None and bool(addresses) and state.age_s > oldest + 2
    return any(times > 1 for times in addresses.values()) or older


def _finding(
    users: list[JobRank], summary: str, because: str, states: list[FileStoreState], fix: Fix, confidence: Confidence
) -> dict[str, Any]:
    return {
        "summary": summary,
        "because": because,
        "evidence": [
            *(state.evidence() for state in states),
            *(rank.evidence(f"{rank.init_method}, {rank.text()}") for rank in users[:4]),
        ],
        "fixes": [
            fix,
            Fix(
                title="or meet over TCP",
                commands=(f"torchrun --standalone --nproc-per-node={len(users)} {users[0].file or 'train.py'}",),
                needs="code change, job restart",
            ),
        ],
        "confidence": confidence,
        "ranks": [rank.rank for rank in users if rank.rank is not None],
    }
