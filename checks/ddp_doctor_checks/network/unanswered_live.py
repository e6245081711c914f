"""Connections of a running job that get no answer: the same address works for another port (302), or never does (301)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_doctor.facts.job import Connection, JobRank, JobView, jobs, named
from ddp_doctor.model import Confidence, Facts, Fix


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's connection attempts without an answer, all to ports of one kind."""

    rank: JobRank
    tries: tuple[Connection, ...]
    to_store: bool
    reachable: bool
    """Whether this address answers somebody of the job on another port."""


def unanswered(facts: Facts, view: JobView) -> list[Unanswered]:
    """One per rank that waits for a TCP handshake."""
    members = {rank.subject.process for rank in view.ranks}
    mine = [each for each in facts[Connection] if each.subject.process in members]
    answers = {each.peer for each in mine if each.state in ("ESTABLISHED", "CLOSE_WAIT")}
    found = []
    trying: dict[object, list[Connection]] = {}
    for each in mine:
        if each.state == "SYN_SENT":
            trying.setdefault(each.subject.process, []).append(each)
    for rank in view.ranks:
        tries = tuple(trying.get(rank.subject.process, ()))
        if not tries or rank.doing not in ("no-answer", "gloo-mesh", "store-key"):
            continue
        to_store = any(each.peer_port == rank.master_port for each in tries)
        found.append(
            Unanswered(rank=rank, tries=tries, to_store=to_store, reachable=any(each.peer in answers for each in tries))
        )
    return found


def filtered(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `FirewallNat.finding`."""
    for view in jobs(facts):
        found = [each for each in unanswered(facts, view) if each.to_store or each.reachable]
        if not found:
            continue
        ranks = [each.rank for each in found]
        first = found[0].tries[0]
        port = f"port {first.peer_port}" if found[0].to_store else "the ports Gloo listens on"
        yield {
            "summary": f"{first.peer} does not answer {named(ranks)} on {port}: packets are dropped",
            "because": "a closed port would refuse at once; no answer means a firewall, a security group or a wrong address. "
            + (
                "every rank must reach rank 0's store before init_process_group can return"
                if found[0].to_store
                else "the store on the same host answers, so the host is up and only these ports are blocked"
            ),
            "evidence": [each.evidence() for item in found[:3] for each in item.tries[:2]],
            "fixes": [
                Fix(
                    title=f"let the job's network in on {first.peer}",
                    commands=(f"sudo iptables -I INPUT -s {first.local} -p tcp -j ACCEPT   # on {first.peer}",),
                    needs=f"root on {first.peer}",
                ),
                Fix(
                    title="see from here whether the port answers",
                    commands=(f"timeout 3 bash -c '</dev/tcp/{first.peer}/{first.peer_port}' && echo open",),
                    needs="nothing",
                ),
            ],
            "confidence": Confidence.LIKELY,
            "ranks": [rank.rank for rank in ranks if rank.rank is not None],
        }


def unroutable(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `WrongInterface.finding`."""
    for view in jobs(facts):
        found = [each for each in unanswered(facts, view) if not each.to_store and not each.reachable]
        if not found:
            continue
        first = found[0].tries[0]
        owner = next(
            (
                rank
                for rank in view.ranks
                for each in facts[Connection]
                if each.subject.process == rank.subject.process
                and (each.state, each.local, each.local_port) == ("LISTEN", first.peer, first.peer_port)
            ),
            None,
        )
        whose = owner.name if owner else "another rank"
        yield {
            "summary": f"Gloo of {whose} listens on {first.peer}, which {found[0].rank.name} cannot reach",
            "because": "Gloo tells the other ranks the address of its host's own name, and that one lies on another "
            "network than "
            "the one the store is reached by",
            "evidence": [each.evidence() for item in found[:3] for each in item.tries[:2]],
            "fixes": [
                Fix(
                    title=f"name the interface of the job's network, on the host of {whose} and all others",
                    commands=(
                        "export GLOO_SOCKET_IFNAME=eth0   # the interface that has the address MASTER_ADDR is reached by",
                    ),
                )
            ],
            "confidence": Confidence.LIKELY,
            "ranks": [owner.rank] if owner is not None and owner.rank is not None else [],
        }
