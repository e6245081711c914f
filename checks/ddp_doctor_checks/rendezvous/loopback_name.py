"""DDP202: this node's own name resolves to a loopback address, which Gloo then tells the other nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.names import GlooInterface, PeerInterface, Resolution
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.rendezvous.loopback_name_live import from_job


class LoopbackName(Check):
    id, name = "DDP202", "loopback-name"
    title = "This node's name resolves to a loopback address"
    needs = ((GlooInterface, JobRank), (Meeting, JobRank))
    also_reads = (Resolution, PeerInterface)
    acts_at = frozenset({Stage.GLOO_MESH})
    explains = ("DDP101", "DDP606")
    told = Told(
        because="Gloo advertises the address that the node's own name resolves to; where that is loopback, other nodes "
        "connect to themselves",
        fixes=(
            Fix(
                title="name the interface on every node, also for remote workers",
                commands=("export GLOO_SOCKET_IFNAME=eth0   # the interface of `ip route get HEAD`",),
                needs="job restart",
            ),
            Fix(
                title="or give the name its address",
                commands=(
                    'getent hosts "$(hostname)"; sudo sed -i "/^127.0.1.1/d" /etc/hosts   # then add: ADDRESS NAME',
                ),
                needs="root",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if any((meeting.nodes or 1) > 1 for meeting in facts[Meeting]) or not facts[Meeting]:
            return ""
        return "nothing here tells of a second node, and on one Gloo may listen on loopback"

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for meeting in facts[Meeting]:
            here = facts.on(meeting.subject.host)
            for chosen in here[GlooInterface] if (meeting.nodes or 1) > 1 else ():
                if (
                    chosen.chosen_by != "hostname"
                    or not ipaddress.ip_address(chosen.address.partition("%")[0]).is_loopback
                ):
                    continue
                name = next(each for each in here[Resolution] if each.role == "hostname")
                yield self.finding(
                    f"this node's name {name.name} resolves to {chosen.address}, but {meeting.nodes} nodes are expected "
                    f"({meeting.nodes_because})",
                    because="Gloo listens on the address of the hostname and tells it to all ranks; "
                    "those on other nodes connect to themselves and get `connection refused`",
                    evidence=[name.evidence(), chosen.evidence(f"Gloo will listen on {chosen.text()}")],
                    confidence=Confidence.LIKELY,
                    fixes=_fixes(name.name, here.first(PeerInterface)),
                )


def _fixes(name: str, peer: PeerInterface | None) -> list[Fix]:
    interface = peer.interface if peer else "eth0"
    address = peer.address if peer else "10.0.0.1"
    return [
        Fix(title="name the interface, on every node its own", commands=(f"export GLOO_SOCKET_IFNAME={interface}",)),
        Fix(
            title="or give the name its real address, on every node",
            commands=(
                rf"sudo sed -i -E '/^127\./s/[[:space:]]{name}([[:space:]]|$)/\1/g' /etc/hosts"
                f" && echo '{address} {name}' | sudo tee -a /etc/hosts",
            ),
            needs="root",
        ),
    ]
