"""What to type where NCCL or Gloo chose the wrong interface."""

from __future__ import annotations

from ddp_doctor.facts.names import PeerInterface
from ddp_doctor.model import Facts, Fix


def interface_fixes(library: str, here: Facts) -> list[Fix]:
    """The interface that the other ranks reach, by name."""
    peer = here.first(PeerInterface)
    name = peer.interface if peer else "lo"
    exact = f"export NCCL_SOCKET_IFNAME='={name}'" if library == "NCCL" else f"export GLOO_SOCKET_IFNAME={name}"
    why = f"the interface that {peer.because}" if peer else "loopback, the only one here, which is enough for one node"
    return [Fix(title=f"name {why}; on every node its own", commands=(exact,))]
