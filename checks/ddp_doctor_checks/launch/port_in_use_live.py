"""What a running job shows of DDP112: rank 0 is here and hosts no store, and its port belongs to another program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import OWN_CODE, Connection, JobRank, Listener, Process, jobs
from ddp_doctor.model import Confidence, Facts
from ddp_doctor_checks.listener import fixes, is_store

READS = (JobRank, Listener, Process, Connection)


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `PortInUse.finding`, one set per rank 0 that cannot open its store."""
    processes = {each.subject.process: each for each in facts[Process]}
    for view in jobs(facts):
        members = {each.subject.pid for each in (*view.ranks, *view.others)}
        for rank in view.ranks:
            process = processes.get(rank.subject.process)
            if rank.rank != 0 or process is None or rank.beyond_init or rank.doing not in OWN_CODE:
                continue
            if process.variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
                continue
            for listener in facts[Listener]:
                foreign = listener.owner not in (None, *members) and not is_store(listener)
                if listener.port == rank.master_port and listener.network == process.network and foreign:
                    yield _finding(rank, listener)


def _finding(rank: JobRank, listener: Listener) -> dict[str, Any]:
    return {
        "summary": f"MASTER_PORT {listener.port} is held by {listener.words}: rank 0 cannot open its store there",
        "because": "one process at a time can listen on a port; rank 0 gets EADDRINUSE, and the other ranks talk to whatever "
        "answers there",
        "evidence": [listener.evidence(), rank.evidence()],
        "fixes": fixes(listener),
        "confidence": Confidence.LIKELY,
        "ranks": [0],
    }
