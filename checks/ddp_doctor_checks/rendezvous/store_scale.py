"""DDP208: more ranks connect to the store at once than its listener can queue."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.rendezvous import Backlog, Meeting
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

MANY = 64


class StoreScale(Check):
    id, name = "DDP208", "store-scale"
    title = "More ranks than the store's listener can queue"
    needs = (Backlog, Meeting)
    acts_at = frozenset({Stage.STORE_CONNECT})
    told = Told(
        because="all ranks connect to one store at once; queues of connections and ports have limits, and what does not "
        "fit is reset",
        fixes=(
            Fix(
                title="raise the queue on the node of rank 0",
                commands=("sudo sysctl -w net.core.somaxconn=65535 net.ipv4.tcp_max_syn_backlog=65535",),
                needs="root",
            ),
            Fix(
                title="allow more time and use the store that scales",
                commands=("dist.init_process_group(timeout=datetime.timedelta(minutes=60))   # torch >= 2.4: libuv",),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for meeting in facts[Meeting]:
            for backlog in facts.on(meeting.subject.host)[Backlog]:
                size = meeting.world_size or 0
                if meeting.hosts is False or size <= MANY or size <= backlog.connections:
                    continue
                yield self.finding(
                    f"{size} ranks will connect to a store that can queue {backlog.connections} connections",
                    because="connections beyond the queue are dropped or reset; older PyTorch gives up on a reset",
                    evidence=[backlog.evidence(), meeting.evidence(f"WORLD_SIZE={size}")],
                    severity=Severity.NOTE,
                    confidence=Confidence.POSSIBLE,
                    fixes=[
                        Fix(
                            title="a longer queue on rank 0's node",
                            commands=("sudo sysctl -w net.core.somaxconn=4096",),
                            needs="root, job restart",
                        )
                    ],
                )
