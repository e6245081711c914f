"""What checks say about a program that listens on MASTER_PORT and is none of the job's."""

from __future__ import annotations

from ddp_doctor.facts.job import Listener
from ddp_doctor.model import Fix

STORES = ("pt_tcpstore", "pt_elastic")


def is_store(listener: Listener) -> bool:
    """Whether it is a store of torch's, of whichever job, or torchrun's agent, which hosts one."""
    return any(name.startswith(STORES) for name in (*listener.threads, listener.command))


def fixes(listener: Listener) -> list[Fix]:
    """Another port, and the end of that program where it is known."""
    found = [
        Fix(
            title="use another port, the same on every rank",
            commands=(f"export MASTER_PORT={listener.port + 1 if listener.port < 65535 else 29500}",),
        )
    ]
    if listener.owner:
        found.append(
            Fix(
                title="or end that program, if nobody needs it",
                commands=(f"kill {listener.owner}",),
                needs="its owner, job restart",
            )
        )
    return found
