"""ACME001: the node is being drained, and its firewall no longer lets new connections in."""

from __future__ import annotations

from collections.abc import Iterator

from acme_cluster_checks.drain_notice import DrainNotice
from ddp_doctor import Check, Confidence, Facts, Finding, Fix, Severity


class DrainingNode(Check):
    id, name = "ACME001", "acme-draining-node"
    title = "The node is being taken out of service"
    needs = (DrainNotice,)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for notice in facts[DrainNotice]:
            if notice.present:
                yield self.finding(
                    f"this node is being drained: {notice.text()}",
                    because="from the notice on its firewall drops new connections, so no rank elsewhere can reach it",
                    evidence=[notice.evidence()],
                    severity=Severity.ERROR,
                    confidence=Confidence.CERTAIN,
                    fixes=[
                        Fix(
                            title="submit the job again without this node",
                            commands=('sbatch --exclude="$(hostname -s)" job.sh',),
                            needs="job restart",
                        )
                    ],
                )
