"""DDP201: the address where the ranks meet, or this node's own name, has no answer from the resolver."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.names import GlooInterface, PeerInterface, Resolution, ReverseLookup
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.rendezvous.bad_master_addr_text import wrong_address
from ddp_doctor_checks.rendezvous.dns_or_self_name_fixes import master_fixes
from ddp_doctor_checks.rendezvous.dns_or_self_name_live import from_job


class DnsOrSelfName(Check):
    id, name = "DDP201", "dns-or-self-name"
    title = "MASTER_ADDR or this node's own name does not resolve"
    needs = ((Resolution, JobRank), (Meeting, JobRank))
    also_reads = (GlooInterface, PeerInterface, ReverseLookup, TrialRank)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.GLOO_MESH})
    explains = ("DDP101",)
    told = Told(
        because="a name in the launch line does not resolve here, or node 0 does not recognise it as its own and so hosts "
        "no store",
        fixes=(
            Fix(
                title="see what every node makes of the name",
                commands=("getent ahosts HOST   # the name of the message",),
                needs="nothing",
            ),
            Fix(
                title="use an address, and tell the head node that it is the head",
                commands=(
                    "torchrun --rdzv-backend=c10d --rdzv-endpoint=$HEAD_IP:29500 --rdzv-conf=is_host=1 \\",
                    "    --nnodes=2 --nproc-per-node=4 train.py   # is_host=0 on the others",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        told = any(not resolution.answered for resolution in facts[Resolution])
        for lookup in facts[ReverseLookup]:
            if not lookup.answered and not told:
                yield self._silent_about_ends(lookup, facts)
        for meeting in facts[Meeting]:
            here = facts.on(meeting.subject.host)
            for resolution in here[Resolution]:
                if resolution.addresses:
                    continue
                if resolution.role == "hostname":
                    yield from self._own_name(resolution, meeting, here)
                elif not wrong_address(resolution.name):
                    # what is no name at all is DDP204's
                    yield self._master(resolution, meeting, here)

    def _master(self, resolution: Resolution, meeting: Meeting, here: Facts) -> Finding:
        variable = meeting.address_variable or "MASTER_ADDR"
        # "try again" and silence can pass; "no such name" is an answer
        final = resolution.answered and resolution.code == socket.EAI_NONAME
        return self.finding(
            f"{variable} {resolution.name!r} does not resolve on {resolution.subject.host}: {resolution.error}",
            because="a rank retries the name until the time-out (10 or 30 min by default, up to twice that) before it fails",
            evidence=[resolution.evidence()],
            confidence=Confidence.CERTAIN if final else Confidence.LIKELY,
            fixes=master_fixes(meeting, here),
        )

    def _silent_about_ends(self, lookup: ReverseLookup, facts: Facts) -> Finding:
        stuck = [rank for rank in facts[TrialRank] if rank.stage is Stage.STORE_CONNECT and rank.outcome != "passed"]
        return self.finding(
            f"the resolver on {lookup.subject.host} gives no answer about addresses (waited {lookup.seconds:.0f} s)",
            because="torch asks for the name of both ends of each connection to the store before it uses it, even for "
            "127.0.0.1, so every rank waits as long as the resolver does, and with it init_process_group",
            evidence=[lookup.evidence(), *(rank.evidence() for rank in stuck)],
            severity=Severity.ERROR if stuck else Severity.WARNING,
            confidence=Confidence.LIKELY,
            fixes=[
                Fix(title="let it give up sooner", commands=('export RES_OPTIONS="timeout:1 attempts:1"',)),
                Fix(title="and mend the nameserver named in", commands=("cat /etc/resolv.conf",), needs="root"),
            ],
        )

    def _own_name(self, resolution: Resolution, meeting: Meeting, here: Facts) -> Iterator[Finding]:
        if any(each.chosen_by == "variable" for each in here[GlooInterface]):
            return
        several = (meeting.nodes or 1) > 1
        peer = here.first(PeerInterface)
        # with several nodes a loopback address would be the next fault
        own = peer.address if peer else "$(hostname -I | cut -d' ' -f1)" if several else "127.0.1.1"
        fixes = [
            Fix(
                title="give the name this node's address, by which the others reach it"
                if several
                else "give the name an address",
                commands=(f'echo "{own} {resolution.name}" | sudo tee -a /etc/hosts',),
                needs="root",
            )
        ]
        if peer:
            choose = f"export GLOO_SOCKET_IFNAME={peer.interface}"
            fixes.insert(0, Fix(title="name the interface on this node", commands=(choose,)))
        if not resolution.answered:
            summary = f"the resolver did not answer for this node's own name {resolution.name!r}: {resolution.error}"
            because = (
                "Gloo asks for its own name before it listens, so every rank here waits as long as the resolver does"
            )
            severity = Severity.ERROR if several else Severity.WARNING
        else:
            summary = f"this node's own name {resolution.name!r} does not resolve: {resolution.error}"
            because = "Gloo then listens on 127.0.0.1, where no other node can reach it" + (
                f"; {meeting.nodes} nodes are expected ({meeting.nodes_because})"
                if several
                else "; on one node that is enough"
            )
            severity = Severity.ERROR if several else Severity.NOTE
        yield self.finding(
            summary,
            because=because,
            evidence=[resolution.evidence()] + ([meeting.evidence()] if several else []),
            severity=severity,
            confidence=Confidence.LIKELY,
            fixes=fixes,
        )
