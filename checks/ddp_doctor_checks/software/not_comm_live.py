"""What a running job shows of DDP505: a rank that waits for a file, a lock or its DataLoader while the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, JobView, Process, jobs
from ddp_doctor.model import Confidence, Facts, Fix

LOCK_CALLS = ("flock", "fcntl")
NETWORK_FILES = ("nfs", "rpc_", "fuse", "request_wait", "ceph", "lustre")
ELSEWHERE = ("user-code", "importing", "data", "")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `NotComm.finding`, one set per rank."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        for rank in view.culprits():
            process = processes.get(rank.subject.process)
            if process is None or rank.doing not in ELSEWHERE or rank.state in ("running", "stopped", "exited"):
                continue
            found = _data(rank, view) if rank.doing == "data" else _file(rank, process)
            if found is not None:
                yield {**found, "confidence": Confidence.LIKELY, "ranks": [rank.rank] if rank.rank is not None else []}


def _data(rank: JobRank, view: JobView) -> dict[str, Any]:
    workers = [each for each in view.others if each.role == "data-worker" and each.has_stack]
    own = [each for each in workers if each.where] or workers
    stands = f"; they stand at {own[0].where}" if own and own[0].where else ""
    return {
        "summary": f"{rank.name} waits for its DataLoader workers, not for other ranks{stands}",
        "because": "no batch comes, so this rank never reaches the collective that the others wait in; their errors will blame "
        "communication",
        "evidence": [rank.evidence(), *(each.evidence(f"PID {each.subject.pid}: {each.text()}") for each in own[:4])],
        "fixes": [
            Fix(
                title="load without workers to see where it stops, or start them fresh so that they inherit no lock",
                commands=('DataLoader(..., num_workers=2, multiprocessing_context="spawn")',),
                needs="code change, job restart",
            )
        ],
    }


def _file(rank: JobRank, process: Process) -> dict[str, Any] | None:
    wchan = process.tasks[0].wchan if process.tasks else ""
    shown = process.file or "a file"
    seen = process.evidence(f"PID {process.pid}: {process.system_call or wchan} on {shown}")
    if process.system_call in LOCK_CALLS or process.lock_holder is not None or "lock_inode" in wchan:
        holder = f", which PID {process.lock_holder} holds" if process.lock_holder else ""
        summary = f"{rank.name} waits for the lock on {shown}{holder}"
        fix = Fix(
            title="see who holds the lock; if that process is left over, end it",
            commands=(f"ps -o pid,lstart,cmd -p {process.lock_holder}" if process.lock_holder else "lslocks",),
            needs="nothing",
        )
    elif rank.state == "blocked" or any(name in wchan for name in NETWORK_FILES):
        summary = (
            f"{rank.name} is blocked in the kernel ({wchan}) at {rank.where}: a file system or device does not answer"
        )
        fix = Fix(
            title="see whether the file system answers",
            commands=(f"timeout 5 stat -f {process.cwd or '/'}",),
            needs="nothing",
        )
    elif process.system_call in ("read", "pread64", "readv", "write", "fsync") and process.file:
        summary = f"{rank.name} waits in {process.system_call} of {shown} at {rank.where}"
        fix = Fix(
            title="give it the input, or start the job without a step that asks for some",
            commands=("python train.py < /dev/null",),
            needs="job restart",
        )
    else:
        return None
    return {
        "summary": summary,
        "because": "the others wait for this rank in torch.distributed, but it has not come to its call: their errors will "
        "blame communication",
        "evidence": [seen, rank.evidence()],
        "fixes": [fix],
    }
