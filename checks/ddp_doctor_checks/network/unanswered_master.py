"""Rank 0's node does not answer a rank that has a route to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.names import Route
from ddp_doctor.facts.rendezvous import Meeting, unheard_answers
from ddp_doctor.model import Confidence, Facts, Fix, Severity


def from_master(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `FirewallNat.finding`. A refusal is an answer: rank 0 has just not started."""
    for meeting in facts[Meeting]:
        here = facts.on(meeting.subject.host)
        routed = {route.to for route in here[Route] if not route.error}
        unheard = [answer for answer in unheard_answers(meeting, here) if answer.address in routed]
        if meeting.hosts or not unheard:
            continue
        where = f"{meeting.address}:{unheard[0].port}"
        yield {
            "summary": f"rank 0's node does not answer at {where}: a firewall may drop or reject the connection",
            "because": "a node that is up refuses at once while rank 0 has not started; this one is silent or not to be "
            "reached, as behind a firewall, or it is down, or the address is wrong",
            "evidence": [answer.evidence() for answer in unheard],
            "severity": Severity.WARNING,
            "confidence": Confidence.POSSIBLE,
            "fixes": [
                Fix(
                    title="try it while rank 0 waits",
                    commands=(f"timeout 5 bash -c '</dev/tcp/{meeting.address}/{unheard[0].port}' && echo open",),
                    needs="nothing",
                )
            ],
        }
