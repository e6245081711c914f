"""DDP203: NCCL_HOSTID replaces the identity by which NCCL tells machines apart."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told


class HostIdentity(Check):
    id, name = "DDP203", "host-identity"
    title = "Different machines look like one host to NCCL"
    needs = (Meeting, (Variable, Meeting))
    acts_at = frozenset({Stage.COMM_TOPOLOGY, Stage.TRANSPORT})
    told = Told(
        because="NCCL takes ranks with the same host identity for neighbours and tries shared memory and CUDA IPC between "
        "machines",
        fixes=(
            Fix(
                title="give every machine a name of its own, and do not set NCCL_HOSTID alike on two",
                commands=("unset NCCL_HOSTID; hostname   # must differ on every node",),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        several = any((meeting.nodes or 1) > 1 for meeting in facts[Meeting])
        return "" if several else "one node, or the number of nodes is not known"

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        values = [each for each in facts[Variable] if each.name == "NCCL_HOSTID" and each.in_effect and each.value]
        for variable in values:
            host = variable.subject.host
            if host and host.partition(".")[0] in variable.value:
                continue
            yield self.finding(
                f"NCCL_HOSTID={variable.value} is set for a job of several nodes",
                because="NCCL takes all ranks with the same value for ranks of one machine and connects them "
                "through shared memory and CUDA IPC, which fails or hangs between machines",
                evidence=[variable.evidence()],
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
                fixes=[
                    Fix(title="let NCCL use the machine's own identity", commands=("unset NCCL_HOSTID",)),
                    Fix(title="or make it differ between nodes", commands=("export NCCL_HOSTID=$(hostname)",)),
                ],
            )
