"""What a running job shows of DDP505: a rank that waits for a file, a lock or its DataLoader while the others wait for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ddp_doctor.facts.job import OWN_CODE, JobRank, JobView, Process, jobs
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks.software.not_comm_person import waits_for_a_person

LOCK_CALLS = ("flock", "fcntl")
NETWORK_FILES = ("nfs", "rpc_", "fuse", "request_wait", "ceph", "lustre")
BLAMED = (
    "the others wait for this rank in torch.distributed, but it has not come to its call: their errors will blame "
    "communication"
)


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `NotComm.finding`, one set per rank."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        for rank in view.culprits():
            process = processes.get(rank.subject.process)
            if process is None or rank.doing not in OWN_CODE or rank.state in ("running", "stopped", "exited"):
                continue
            found = _data(rank, view, processes) if rank.doing == "data" else _waits(rank, process, view, processes)
            if found is not None:
                # the kernel names who holds the lock
                held = process.lock_holder is not None and process.system_call in LOCK_CALLS
                sure = Confidence.CERTAIN if held else Confidence.LIKELY
                yield {**found, "confidence": sure, "ranks": [rank.rank] if rank.rank is not None else []}


def _data(rank: JobRank, view: JobView, processes: Mapping[Any, Process]) -> dict[str, Any]:
    workers = [
        each
        for each in view.others
        if each.role == "data-worker"
        and each.has_stack
        and (known := processes.get(each.subject.process)) is not None
        and known.parent == rank.subject.pid
        # a fork keeps the frames of the rank's own script below its own: an idle worker shows nothing else
        and each.where != rank.where
    ]
    own = [each for each in workers if each.where] or workers
    stands = f"; they stand at {own[0].where}" if own and own[0].where else ""
    return {
        "summary": f"{rank.name} waits for its DataLoader workers, not for other ranks{stands}",
        "because": "no batch comes, so this rank never reaches the collective that the others wait in; their errors will blame "
        "communication",
        "evidence": [
            rank.evidence(),
            *(each.evidence(f"worker, {each.state}: {each.where or each.doing}") for each in own[:4]),
        ],
        "fixes": [
            Fix(
                title="load without workers to see where it stops, or start them fresh so that they inherit no lock",
                commands=('DataLoader(..., num_workers=2, multiprocessing_context="spawn")',),
                needs="code change, job restart",
            )
        ],
    }


def _waits(rank: JobRank, process: Process, view: JobView, processes: Mapping[Any, Process]) -> dict[str, Any] | None:
    asks = waits_for_a_person(rank, process)
    if asks is None:
        return _file(rank, process, view, processes)
    wait = process.system_call or (process.tasks[0].wchan if process.tasks else "")
    seen = process.evidence(f"PID {process.pid}: {wait} on {process.file or 'its terminal'}")
    return {**asks, "because": BLAMED, "evidence": [rank.evidence(), seen]}


def _file(rank: JobRank, process: Process, view: JobView, processes: Mapping[Any, Process]) -> dict[str, Any] | None:
    wchan = process.tasks[0].wchan if process.tasks else ""
    shown = process.file or "a file"
    seen = process.evidence(f"PID {process.pid}: {process.system_call or wchan} on {shown}")
    if process.system_call in LOCK_CALLS or process.lock_holder is not None or "lock_inode" in wchan:
        owner = next((each for each in view.ranks if each.subject.pid == process.lock_holder), None)
        if owner is not None:
            return _held_by_a_rank(rank, owner, process, seen)
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
        ended = [
            each.pid
            for each in processes.values()
            if each.gone and each.subject.host == process.subject.host and each.parent == process.pid
        ]
        summary = f"{rank.name} waits in {process.system_call} of {shown} at {rank.where}" + (
            f"; a process that it started, PID {ended[0]}, has ended" if ended else ""
        )
        fix = _other_end(shown)
    else:
        return None
    return {"summary": summary, "because": BLAMED, "evidence": [seen, rank.evidence()], "fixes": [fix]}


def _held_by_a_rank(rank: JobRank, owner: JobRank, process: Process, seen: Any) -> dict[str, Any]:
    stands = f", which stands in {owner.call or owner.where} ({owner.where})" if owner.where else ""
    return {
        "summary": f"{rank.name} waits for the lock on {process.file or 'a file'}, which {owner.name} holds{stands}",
        "because": f"{owner.name} waits for {rank.name}, and {rank.name} for the lock: neither goes on",
        "evidence": [seen, rank.evidence(), owner.evidence()],
        "fixes": [
            Fix(
                title=f"release the lock before the call that waits for the other ranks ({owner.where})",
                commands=("fcntl.flock(file, fcntl.LOCK_UN)   # before that call, not after it",),
                needs="code change, job restart",
            )
        ],
    }


def _other_end(shown: str) -> Fix:
    pattern = re.sub(r"([\[\]*?\\])", r"\\\1", shown)
    return Fix(
        title="see which processes have the other end open, and whether the one that should write lives",
        commands=(f"find /proc/[0-9]*/fd -lname {shlex.quote(pattern)} 2>/dev/null   # /proc/PID/fd/N",),
        needs="nothing",
    )
