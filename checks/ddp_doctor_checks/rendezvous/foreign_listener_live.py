"""What a running job shows of DDP209: its ranks talk to a listener on MASTER_PORT that is none of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Listener, Process, jobs, named
from ddp_doctor.model import Confidence, Facts
from ddp_doctor_checks.listener import fixes, is_store

TALKING = ("handshake", "refused", "no-answer")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `ForeignListener.finding`, one set per job and listener."""
    networks = {process.subject.process: process.network for process in facts[Process]}
    unread = {process.pid for process in facts[Process] if not process.sockets_read}
    for view in jobs(facts):
        members = {each.subject.pid for each in (*view.ranks, *view.others)}
        for listener in facts[Listener]:
            stuck = [
                rank
                for rank in view.ranks
                if rank.doing in TALKING
                and rank.master_port == listener.port
                and networks.get(rank.subject.process) == listener.network
            ]
            # with sockets of its own that could not be seen, the job may well be the owner
            hidden = listener.owner is None and bool(members & unread)
            if not stuck or hidden or listener.owner in members or is_store(listener):
                continue
            yield _finding(stuck, listener)


def _finding(stuck: list[JobRank], listener: Listener) -> dict[str, Any]:
    mute = any(rank.doing == "handshake" for rank in stuck)
    left_over = listener.command == "pt_data_worker"
    known = listener.owner is not None and bool(listener.threads)
    return {
        "summary": f"{listener.words} listens on MASTER_PORT {listener.port} and is not this job's store"
        + (": a DataLoader worker of an earlier run inherited it" if left_over else ""),
        "because": f"{named(stuck)} connected to it and wait for an answer of the store's protocol; that wait has no timeout"
        if mute
        else f"{named(stuck)} ask it for the store, get no answer they understand, and try again until the timeout",
        "evidence": [listener.evidence(), *(rank.evidence() for rank in stuck[:4])],
        "fixes": fixes(listener),
        "confidence": Confidence.CERTAIN if known else Confidence.LIKELY,
        "ranks": [rank.rank for rank in stuck if rank.rank is not None],
    }
