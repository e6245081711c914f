"""Where the ranks meet: the port of the store, who holds it, and what answers there."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.model import Fact, Facts


class Meeting(Fact, frozen=True, kw_only=True):
    """Where the ranks meet and how many nodes there are, as the launch variables of one process say.

    `address` and `port` are None where no variable gives them; `port` also where its text is no port number. `hosts`
    says whether this process (or its agent) is the one that opens the store, None where the variables do not tell.
    """

    address: str | None = None
    address_variable: str = ""
    port: int | None = None
    port_text: str = ""
    port_variable: str = ""
    hosts: bool | None = None
    hosts_because: str = ""
    nodes: int | None = None
    nodes_because: str = ""
    world_size: int | None = None
    local_world_size: int | None = None
    launched: bool = False
    """Whether any variable of a launcher or of env:// is set; False is a plain shell."""

    def text(self) -> str:
        shown = (self.nodes_because, self.hosts_because)
        return ", ".join(item for item in shown if item) or "no launch variables"


class Port(Fact, frozen=True, kw_only=True):
    """Whether rank 0 could open its store on this port now. `error` is the kernel's text where binding failed.

    `named` is False where no variable gives a port and torchrun's default was tried.
    """

    port: int
    named: bool
    bindable: bool
    error: str = ""
    errno: int | None = None
    next_free: int | None = None
    """The next higher port that can be bound."""
    ephemeral: bool = False
    """Whether the kernel hands this port out to outgoing connections (net.ipv4.ip_local_port_range)."""

    def text(self) -> str:
        return f"port {self.port} is free" if self.bindable else f"bind to port {self.port}: {self.error}"


class PortOwner(Fact, frozen=True, kw_only=True):
    """One socket that holds a port on this node. `pid` is None where its process cannot be seen (`user` still can)."""

    port: int
    address: str
    listening: bool
    user: str
    same_user: bool = False
    pid: int | None = None
    start_time: int | None = None
    """In clock ticks since boot."""
    command: str = ""
    """The kernel's short name, such as `pt_data_worker`."""
    arguments: tuple[str, ...] = ()
    state: str = ""
    """The kernel's state letter; `T` is stopped."""
    parent: int | None = None
    parent_command: str = ""
    session_leader_alive: bool = True
    age_s: float | None = None
    nccl_loaded: bool | None = None
    """Whether libnccl is mapped into it; None where that cannot be seen."""
    job: dict[str, str] = msgspec.field(default_factory=dict)
    """RANK, MASTER_PORT and job ids in its environment at exec, where readable."""

    @property
    def orphan(self) -> bool:
        """True where the process that started it is gone and nothing but init looks after it."""
        if self.parent != 1 and self.parent_command not in INITS:
            return False
        # the first process of a container may itself start ranks
        return not self.session_leader_alive or self.parent_command in INITS or self.command == "pt_data_worker"

    @property
    def who(self) -> str:
        """The process in words, as a person would name it."""
        if self.pid is None:
            return "one of your processes that is not visible here" if self.same_user else f"a process of {self.user}"
        shown = " ".join(" ".join(self.arguments).split()) or self.command
        return f"PID {self.pid} ({shown if len(shown) <= 70 else shown[:67] + '...'})"

    def text(self) -> str:
        doing = "listens" if self.listening else "is connected"
        return f"{self.who} {doing} on {self.address}:{self.port}"


INITS = (
    "systemd",
    "init",
    "tini",
    "dumb-init",
    "docker-init",
    "catatonit",
    "s6-svscan",
    "runit",
    "podman-init",
    "launchd",
)


class StoreAnswer(Fact, frozen=True, kw_only=True):
    """What answered on the store's port when it was asked as a TCPStore client asks (validate, ping; read only).

    `store` speaks the protocol; `silent` accepts and says nothing; `closes` ends the connection without an answer;
    `http` and `other` answer with something else (`got`); `refused`, `dropped` (no answer to the connect) and
    `unreachable` never connected.
    """

    name: str
    address: str
    port: int
    verdict: Literal["store", "silent", "closes", "http", "other", "refused", "dropped", "unreachable"]
    seconds: float = 0.0
    local: bool = False
    """Whether the address is one of this node."""
    got: str = ""
    """The first bytes of the answer, printable ones as ASCII, others as \\xNN."""
    errno: int | None = None
    error: str = ""
    joined: int | None = None
    """How many clients the store says have joined."""
    ranks: tuple[int, ...] = ()
    """Gloo ranks of the default group that have published their address."""
    nccl_id: bool = False
    """Whether rank 0 has published the default group's NCCL id."""
    neighbour: str = ""
    """The hardware address that answers for it on this node's own network (ARP), where the connection failed."""

    @property
    def silent(self) -> str:
        return self.text() if self.verdict in ("silent", "dropped") else ""

    def text(self) -> str:
        where = f"{self.address}:{self.port}"
        said = {
            "store": f"a TCPStore, {self.joined} clients joined" if self.joined is not None else "a TCPStore",
            "silent": f"accepted the connection and said nothing in {self.seconds:.1f} s",
            "closes": "accepted the connection and closed it without an answer",
            "http": f"answered HTTP: {self.got}",
            "other": f"answered {self.got}",
            "refused": "connection refused: nothing listens",
            "dropped": f"no answer to the connect in {self.seconds:.1f} s",
            "unreachable": self.error,
        }
        return f"{where} {said[self.verdict]}"


class SelfReach(Fact, frozen=True, kw_only=True):
    """What happened when this node, listening on the store's port, connected to MASTER_ADDR, which is not its own address.

    `arrived` means that the address leads back here (a service or translated address).
    """

    address: str
    port: int
    outcome: Literal["arrived", "elsewhere", "refused", "dropped", "unreachable"]
    error: str = ""

    def text(self) -> str:
        said = {
            "arrived": "leads back to this node",
            "elsewhere": "was accepted by another host",
            "refused": "was refused while this node listened",
            "dropped": "got no answer",
            "unreachable": f"failed: {self.error}",
        }
        return f"a connection to {self.address}:{self.port} {said[self.outcome]}"


class Backlog(Fact, frozen=True, kw_only=True):
    """The most connections the kernel queues for a listener (net.core.somaxconn)."""

    connections: int

    def text(self) -> str:
        return f"net.core.somaxconn = {self.connections}"


class SideCar(Fact, frozen=True, kw_only=True):
    """A service mesh's proxy that shares this network namespace, known by its ports and the user it runs as."""

    mesh: str
    ports: tuple[int, ...]
    user: int

    def text(self) -> str:
        return f"user {self.user} listens on {', '.join(map(str, self.ports))}: the ports of {self.mesh}'s proxy"


def unheard_answers(meeting: Meeting, here: Facts) -> tuple[StoreAnswer, ...]:
    """The questions to the master where none of them was accepted or refused; else nothing."""
    answers = tuple(answer for answer in here[StoreAnswer] if answer.name == meeting.address and not answer.local)
    return answers if all(answer.verdict in ("dropped", "unreachable") for answer in answers) else ()
