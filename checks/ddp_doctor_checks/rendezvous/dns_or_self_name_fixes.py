"""What to type where MASTER_ADDR has no address."""

from __future__ import annotations

from ddp_doctor.facts.names import PeerInterface
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Facts, Fix


def master_fixes(meeting: Meeting, here: Facts) -> list[Fix]:
    """The address of rank 0 in place of its name, as far as it is known here."""
    variable = meeting.address_variable if meeting.address_variable.endswith("MASTER_ADDR") else "MASTER_ADDR"
    if (meeting.nodes or 1) == 1:
        return [Fix(title="all ranks on this node", commands=(f"export {variable}=127.0.0.1",))]
    peer = here.first(PeerInterface)
    if meeting.hosts and peer:
        own = (f"export {variable}={peer.address}",)
        return [Fix(title="this node runs rank 0: its address, the same on every node", commands=own)]
    return [
        Fix(
            title="use the address of rank 0's node instead of its name, the same on every node; under Slurm",
            commands=(
                f'export {variable}=$(getent ahostsv4 "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'
                " | awk 'NR==1 {print $1}')",
            ),
        ),
        Fix(title="see what the resolver says", commands=(f"getent ahosts {meeting.address}",), needs="nothing"),
    ]
