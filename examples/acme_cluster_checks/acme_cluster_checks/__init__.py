"""What ddp-doctor should know about the Acme cluster."""

from __future__ import annotations

from ddp_doctor import Pack


def pack() -> Pack:
    """What this pack brings. ddp-doctor calls it once, and only in commands that need checks."""
    from acme_cluster_checks.drain_notice import PROBE, DrainNotice
    from acme_cluster_checks.draining_node import DrainingNode

    return Pack(checks=(DrainingNode,), facts=(DrainNotice,), probes=(PROBE,))
