"""What a running job shows of DDP202: Gloo listens on loopback in a job that spans hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ddp_doctor.facts.job import Connection, JobRank, Process, jobs
from ddp_doctor.interpret.family import number
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `LoopbackName.finding`, at most one set per job."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        found = []
        for rank in view.ranks:
            mine = [each for each in facts[Connection] if each.subject.process == rank.subject.process]
            to_store = [each for each in mine if each.peer_port == rank.master_port and each.state != "LISTEN"]
            remote = [each for each in to_store if each.peer != each.local and not each.peer.startswith("127.")]
            gloo = [
                each
                for each in mine
                if each.state == "LISTEN" and each.local.startswith("127.") and each.local_port != rank.master_port
            ]
            several = _spans_hosts(rank, processes)
            if rank.doing in ("gloo-mesh", "store-key") and gloo and (remote or (several and to_store)):
                found.append((rank, gloo[0], (remote or to_store)[0]))
        if not found:
            continue
        yield {
            "summary": f"Gloo listens on {found[0][1].local} in {found[0][0].name}, where ranks of other hosts cannot reach it",
            "because": "Gloo listens on the address of the host's own name and tells it to all ranks; that name is "
            "loopback here, so ranks of other hosts connect to themselves",
            "evidence": [each.evidence() for _, gloo, remote in found[:3] for each in (gloo, remote)],
            "fixes": [
                Fix(
                    title="name the interface of the job's network, on every host",
                    commands=(
                        "export GLOO_SOCKET_IFNAME=$(ip -o route get "
                        f"{found[0][2].peer} | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')",
                    ),
                )
            ],
            "confidence": Confidence.LIKELY,
            "ranks": [rank.rank for rank, _, _ in found if rank.rank is not None],
        }


def _spans_hosts(rank: JobRank, processes: Mapping[tuple[str, int | None, int | None], Process]) -> bool:
    """Whether its variables say that not all ranks are on its host, and MASTER_ADDR is none that only this host has."""
    process = processes.get(rank.subject.process)
    local = number(process.variables.get("LOCAL_WORLD_SIZE")) if process else None
    outside = not rank.master_address.startswith("127.") and rank.master_address not in ("", "localhost", "::1")
    return local is not None and rank.world_size is not None and local < rank.world_size and outside
