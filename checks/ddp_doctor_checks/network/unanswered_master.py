"""Rank 0's node does not answer a rank that has a route to it, on MASTER_PORT or on any other port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendance
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import Route
from ddp_doctor.facts.rendezvous import Meeting, StoreAnswer, unheard_answers
from ddp_doctor.model import Confidence, Evidence, Facts, Fix, Severity

READS = (Attendance, Meeting, Route, StoreAnswer, Variable)


def from_master(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `FirewallNat.finding`. A refusal is an answer: rank 0 has just not started."""
    for meeting in facts[Meeting]:
        here = facts.on(meeting.subject.host)
        unmet = _unmet(facts)
        if unmet is not None and not meeting.hosts and (heard := _heard(meeting, here, unmet)):
            yield _other_ports(unmet, heard, here, meeting.subject.host)
            continue
        routed = {route.to for route in here[Route] if not route.error}
        unheard = [answer for answer in unheard_answers(meeting, here) if answer.address in routed]
        if not meeting.hosts and unheard:
            yield _silent(meeting, unheard, unmet)


def _unmet(facts: Facts) -> Attendance | None:
    """The meeting that rank 0 could not be met in, because what is sent to its node gets no answer."""
    attendance = facts.first(Attendance)
    lost = attendance is not None and 0 in attendance.missing and attendance.way in ("dropped", "unreachable")
    return attendance if lost else None


def _heard(meeting: Meeting, here: Facts, unmet: Attendance) -> list[StoreAnswer]:
    """Answers of the address that did not answer the doctor, on MASTER_PORT."""
    place = unmet.place.rpartition(":")[0]
    return [
        answer
        for answer in here[StoreAnswer]
        if answer.name == meeting.address
        and answer.address == place
        and not answer.local
        and answer.verdict not in ("dropped", "unreachable")
    ]


def _other_ports(unmet: Attendance, heard: list[StoreAnswer], here: Facts, host: str) -> dict[str, Any]:
    address, _, port = unmet.place.rpartition(":")
    service = any(each.name == "KUBERNETES_SERVICE_HOST" and each.in_effect for each in here[Variable])
    return {
        "summary": f"TCP from {host} to {address} is dropped on other ports than MASTER_PORT {heard[0].port}, such as {port}",
        "because": "NCCL and Gloo connect to each other on ports that the kernel chooses, in both directions; "
        f"{address} answers on MASTER_PORT, so the host is up and a firewall lets only some ports in"
        + ("; or it is a Kubernetes service's address, which passes on no other port" if service else ""),
        "evidence": [answer.evidence() for answer in heard] + [_told(unmet, host)],
        "fixes": _let_in(address, host),
        "severity": Severity.WARNING if service else Severity.ERROR,
        "confidence": Confidence.POSSIBLE if service else Confidence.LIKELY,
    }


def _silent(meeting: Meeting, unheard: list[StoreAnswer], unmet: Attendance | None) -> dict[str, Any]:
    where = f"{meeting.address}:{unheard[0].port}"
    host = meeting.subject.host
    near = next((answer for answer in unheard if answer.neighbour), None)
    if near is not None and unmet is not None:
        return {
            "summary": f"TCP from {host} to rank 0's node {near.address} is dropped: neither MASTER_PORT {near.port} "
            f"nor {unmet.place.rpartition(':')[2]} answers",
            "because": f"its network card answers on the same network ({near.neighbour}), so the host is up, and what is sent "
            "to it is dropped there or by the network in between",
            "evidence": [answer.evidence() for answer in unheard]
            + [near.evidence(f"ARP: {near.address} is at {near.neighbour}"), _told(unmet, host)],
            "fixes": _let_in(near.address, host),
            "confidence": Confidence.LIKELY,
        }
    return {
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


def _told(unmet: Attendance, host: str) -> Evidence:
    return Evidence(fact=unmet.kind(), source=unmet.place, value=f"{unmet.place} {unmet.way}: {unmet.lost}", host=host)


def _let_in(address: str, host: str) -> list[Fix]:
    table = "ip6tables" if ":" in address else "iptables"
    return [
        Fix(
            title=f"let {host} in on {address}: all TCP ports, in both directions",
            commands=(f"sudo {table} -I INPUT -s ADDRESS_OF_{host} -p tcp -j ACCEPT   # on {address}",),
            needs=f"root on {address}",
        ),
        Fix(
            title="see from here whether it answers",
            commands=(f"timeout 3 bash -c '</dev/tcp/{address}/22' && echo open",),
            needs="nothing",
        ),
    ]
