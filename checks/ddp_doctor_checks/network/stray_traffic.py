"""DDP307: something else talks to NCCL's sockets."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class StrayTraffic(Check):
    id, name = "DDP307", "stray-traffic"
    title = "Something else talks to NCCL's sockets"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.COMM_BOOTSTRAP, Stage.TRANSPORT})
    told = Told(
        because="a scanner, a health check or another job connected to a port of NCCL's; up to 2.26 that alone can end "
        "the bootstrap",
        fixes=(
            Fix(
                title="keep them away from the ports that ranks use",
                commands=(
                    "sysctl net.ipv4.ip_local_port_range   # the range scanners must leave out",
                    "sudo sysctl -w net.ipv4.ip_local_reserved_ports=PORTS_OF_SERVICES",
                ),
                needs="root",
            ),
            Fix(
                title="use an NCCL that discards such connections",
                commands=("pip install -U nvidia-nccl-cu12   # 2.27 or newer, if your torch allows it",),
                needs="job restart",
            ),
        ),
    )
