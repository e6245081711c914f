"""Where the ranks meet, who hosts the store and how many nodes there are, from the launch variables alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.launch import Ancestor, Leftover, Variable
from ddp_doctor.facts.names import Interface
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.interpret import Interpreter, leftovers
from ddp_doctor.model import Fact, Facts, Subject

ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR")
PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
NODE_RANKS = ("GROUP_RANK", "NODE_RANK", "PET_NODE_RANK", "SLURM_NODEID")
NODE_COUNTS = (
    "GROUP_WORLD_SIZE",
    "PET_NNODES",
    "NNODES",
    "SLURM_STEP_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES",
)
SIZES = (("WORLD_SIZE", "LOCAL_WORLD_SIZE"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"))
ENDPOINT = "PET_RDZV_ENDPOINT"
LAUNCH_VARIABLES = (
    *ADDRESSES, *PORTS, *RANKS, *NODE_RANKS, *NODE_COUNTS, *(name for pair in SIZES for name in pair), ENDPOINT,
    "LOCAL_RANK", "TORCHELASTIC_RUN_ID",
)  # fmt: skip


def interpret(facts: Facts) -> list[Fact]:
    """One Meeting per process whose variables are known, and one per examined host that has none set.

    What another launcher left behind says nothing about this job.
    """
    environs: dict[Subject, dict[str, str]] = {}
    left = {
        (item.subject, name) for item in leftovers.interpret(facts) if isinstance(item, Leftover) for name in item.names
    }
    for variable in facts[Variable]:
        if variable.in_effect and (variable.subject, variable.name) not in left:
            environs.setdefault(variable.subject, {})[variable.name] = variable.value
    told = {subject.host for subject in environs}
    for interface in facts[Interface]:
        if interface.subject.host not in told:
            environs.setdefault(Subject(host=interface.subject.host), {})
    together = _on_one_machine(facts)
    return [
        msgspec.structs.replace(
            meeting(environ),
            subject=subject,
            source="launch variables",
            **({"nodes": 1, "nodes_because": together} if together else {}),
        )
        for subject, environ in environs.items()
    ]


def _on_one_machine(facts: Facts) -> str:
    """In words, that all ranks met on one machine, whatever the variables say about nodes; else empty."""
    attendance, attendees = facts.first(Attendance), facts[Attendee]
    if attendance is None or len({each.machine for each in attendees}) != 1:
        return ""
    local = max(each.local_world_size or attendance.world_size for each in attendees)
    all_here = not attendance.missing or len(attendees) > local
    return f"all {len(attendees)} ranks that came are on one machine" if all_here else ""


def meeting(environ: Mapping[str, str]) -> Meeting:
    """What one environment says. A value that is no number counts as not given here; other checks name it."""
    address_variable = _first_set(environ, ADDRESSES)
    port_variable = _first_set(environ, PORTS)
    address = environ[address_variable] if address_variable else None
    port_text = environ[port_variable] if port_variable else ""
    endpoint = rendezvous_endpoint(environ)
    if endpoint and address is None:
        address_variable = port_variable = ENDPOINT
        address, port_text = endpoint
    hosts, hosts_because = _hosts(environ)
    nodes, nodes_because = _nodes(environ)
    return Meeting(
        address=address,
        address_variable=address_variable,
        port=port_number(port_text),
        port_text=port_text,
        port_variable=port_variable,
        hosts=hosts,
        hosts_because=hosts_because,
        nodes=nodes,
        nodes_because=nodes_because,
        world_size=_number(environ.get("WORLD_SIZE")),
        local_world_size=_number(environ.get("LOCAL_WORLD_SIZE")),
        launched=any(name in environ for name in LAUNCH_VARIABLES),
    )


def rendezvous_endpoint(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Host and port text of torchrun's endpoint where it is a TCPStore (not etcd), port 29400 unless given."""
    text = environ.get(ENDPOINT, "").strip()
    if not text or environ.get("PET_RDZV_BACKEND", "c10d") not in ("", "static", "c10d"):
        return None
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, rest.removeprefix(":") or "29400"
    name, colon, port = text.rpartition(":")
    return (name, port) if colon and ":" not in name else (text, "29400")


def port_number(text: str) -> int | None:
    """The port that PyTorch reads from such a text, None if it is none (0 lets the kernel choose and is none either)."""
    number = _number(text)
    return number if number is not None and 0 < number < 65536 else None


def _hosts(environ: Mapping[str, str]) -> tuple[bool | None, str]:
    if (
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        and (node := _number(environ.get("GROUP_RANK"))) is not None
    ):
        return node == 0, f"GROUP_RANK={node}"
    for name in RANKS:
        rank = _number(environ.get(name))
        if rank is not None:
            return rank == 0, f"{name}={rank}"
    for name in NODE_RANKS:
        node = _number(environ.get(name))
        if node is not None:
            local = _number(environ.get("LOCAL_RANK")) or 0
            return node == 0 and local == 0, f"{name}={node}"
    return None, ""


def _nodes(environ: Mapping[str, str]) -> tuple[int | None, str]:
    for whole, here in SIZES:
        total, local = _number(environ.get(whole)), _number(environ.get(here))
        if total and local and total >= local:
            return -(-total // local), f"{whole}={total}, {here}={local}"
    for name in NODE_COUNTS:
        # torchrun accepts a range, MIN:MAX
        count = _number(environ.get(name, "").rpartition(":")[2])
        if count:
            return count, f"{name}={environ[name]}"
    for name in NODE_RANKS:
        node = _number(environ.get(name))
        if node:
            return node + 1, f"{name}={node}"
    return None, ""


def _first_set(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next((name for name in names if name in environ), "")


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


INTERPRETER = Interpreter(
    reads=(Variable, Ancestor, Interface, Attendance, Attendee), gives=(Meeting,), interpret=interpret
)
