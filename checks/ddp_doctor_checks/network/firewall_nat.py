"""DDP302: a rank cannot be reached on the ports that the kernel gave it."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.paths import PathTry
from ddp_doctor.model import INIT, Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks import communicator, paths
from ddp_doctor_checks.network import unanswered_master
from ddp_doctor_checks.network.firewall_nat_paths import from_paths
from ddp_doctor_checks.network.unanswered_live import filtered as from_job
from ddp_doctor_checks.network.unanswered_master import from_master


class FirewallNat(Check):
    id, name = "DDP302", "firewall-nat"
    title = "A rank cannot be reached on the ports the kernel gave it"
    needs = ((CommunicatorStop, JobRank, PathTry),)
    also_reads = (*communicator.READS, *paths.READS, *unanswered_master.READS)
    acts_at = frozenset({Stage.COMM_BOOTSTRAP, Stage.TRANSPORT}) | INIT
    explains = ("DDP101", "DDP606")
    told = Told(
        because="ranks connect to each other on ports above 1024 in both directions, not only to MASTER_PORT; a firewall, "
        "security group or NAT in between drops them",
        fixes=(
            Fix(
                title="try such a connection between the nodes",
                commands=(
                    "python3 -m http.server 45000 --bind 0.0.0.0   # on node A",
                    "timeout 5 bash -c '</dev/tcp/NODE_A/45000' && echo open   # on node B; then the other way round",
                ),
                needs="nothing",
            ),
            Fix(
                title="allow all TCP between the nodes of the job",
                commands=(
                    "sudo ufw allow from NODE_NETWORK to any proto tcp   # or the security group: all traffic from itself",
                ),
                needs="root or network admin",
            ),
            Fix(
                title="in containers use the host's network",
                commands=("docker run --network=host --ipc=host IMAGE",),
                needs="container restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if facts[JobRank] or facts.lacking(JobRank) or any(from_paths(facts)) or any(from_master(facts)):
            return ""
        return communicator.not_tried(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        yield from communicator.findings(self, facts)
        tried = list(from_paths(facts))
        for path in tried:
            yield self.finding(**path)
        for master in from_master(facts) if not tried else ():
            yield self.finding(**master)
