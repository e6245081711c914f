"""DDP111: the ranks look for rank 0 in different places: each node at itself, or each rank at a port of its own."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import PeerInterface, Resolution
from ddp_doctor.facts.rendezvous import Meeting, StoreAnswer
from ddp_doctor.facts.script import PortChoice
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.launch.master_inconsistent_live import from_job
from ddp_doctor_checks.launch.master_inconsistent_meeting import from_meeting
from ddp_doctor_checks.launch.master_inconsistent_script import from_script


class MasterInconsistent(Check):
    id, name = "DDP111", "master-inconsistent"
    title = "Ranks look for rank 0 in different places"
    needs = ((Meeting, PortChoice, JobRank), (StoreAnswer, Meeting, PortChoice, JobRank))
    also_reads = (Attendance, Attendee, Resolution, PeerInterface, Variable)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.STORE_WAIT})
    explains = ("DDP101", "DDP604")
    told = Told(
        because="ranks with different MASTER_ADDR or MASTER_PORT wait at different stores; localhost is another machine "
        "on every node",
        fixes=(
            Fix(
                title="choose address and port once and hand the same to every rank",
                commands=(
                    "export MASTER_PORT=29500",
                    'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)   # under Slurm',
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for met in from_meeting(facts):
            yield self.finding(**met)
        for found in from_script(facts):
            yield self.finding(**found)
        for meeting in facts[Meeting]:
            here = facts.on(meeting.subject.host)
            if (meeting.nodes or 1) < 2 or meeting.address is None:
                continue
            # ranks of one machine may well stand for several nodes, and then the store is here
            if any(answer.local and answer.verdict == "store" for answer in here[StoreAnswer]):
                continue
            if not _leads_to_itself(meeting, here):
                continue
            # Kubernetes operators give the first pod `localhost` and the others its name
            in_pod = bool(meeting.hosts) and any(each.name == "KUBERNETES_SERVICE_HOST" for each in here[Variable])
            peer = here.first(PeerInterface)
            address = peer.address if peer else "10.0.0.1"
            yield self.finding(
                f"{meeting.address_variable}={meeting.address} is this node itself, but {meeting.nodes} nodes are expected "
                f"({meeting.nodes_because})",
                because="each node looks for rank 0's store on itself: node 0 waits for the others until the time-out, "
                "and theirs is refused",
                evidence=[meeting.evidence(f"{meeting.address_variable}={meeting.address}, {meeting.nodes_because}")],
                severity=Severity.NOTE if in_pod else Severity.ERROR,
                confidence=Confidence.LIKELY,
                fixes=[
                    Fix(
                        title="if this node runs rank 0, its address, the same on every node",
                        commands=(f"export {meeting.address_variable}={address}",),
                    )
                    if meeting.hosts is not False
                    else Fix(
                        title="the address of rank 0's node, the same on every node; under Slurm",
                        commands=(
                            f"export {meeting.address_variable}="
                            '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
                        ),
                    )
                ],
            )


def _leads_to_itself(meeting: Meeting, here: Facts) -> bool:
    """A loopback literal anywhere; a name with a loopback address where rank 0 is not (its own name may be one there)."""
    address = meeting.address or ""
    if address.lower() in ("localhost", "localhost.localdomain", "0.0.0.0", "::") or _is_loopback(address):
        return True
    asked = [each for each in here[Resolution] if each.role == "master"]
    addresses = [address for each in asked for address in each.addresses]
    return meeting.hosts is False and bool(addresses) and all(_is_loopback(each) for each in addresses)


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
