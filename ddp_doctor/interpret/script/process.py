"""What one imagined process did on its way through the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ddp_doctor.facts.script import StartedBy
from ddp_doctor.interpret.script.source import Module
from ddp_doctor.interpret.script.values import Val

Spot = tuple[Module, ast.AST]
DEFAULT = "default"

NODES = 2
DEVICES = 4
"""The imagined job: two nodes of four devices, so that rank, local rank and node all differ somewhere."""


@dataclass
class Event:
    """A collective call. `group` is `default`, or names a known subgroup; `stack` are the calls that led here."""

    op: str
    group: str
    spot: Spot
    stack: tuple[Spot, ...]
    decisions: int
    members: str = ""
    ranks: tuple[int, ...] | None = None
    unsure: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the same operation on the same group, wherever it is called."""
        return ("event", self.op, self.group, self.members)


@dataclass
class Choice:
    """A branch whose condition is not known; it is taken to go the same way on all ranks."""

    node: ast.AST
    then: list[Item] = field(default_factory=list)
    other: list[Item] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        return ("choice", tuple(item.key for item in self.then), tuple(item.key for item in self.other))


@dataclass
class Loop:
    """A loop run an unknown number of times, the same on all ranks."""

    node: ast.AST
    body: list[Item] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        return ("loop", tuple(item.key for item in self.body))


@dataclass
class Leave:
    """The end of a loop's round, or of the loop, before its last line."""

    spot: Spot
    decisions: int
    how: str

    @property
    def key(self) -> tuple[object, ...]:
        return ("leave", self.how == "continue")


Item = Event | Choice | Loop | Leave


@dataclass
class Decision:
    """A branch that this rank takes for certain."""

    spot: Spot
    taken: bool
    depth: int
    named: bool = False
    """The condition knows the rank by a name only."""


@dataclass
class CudaUse:
    """A call that initialises CUDA, or (`only_asked`) makes the driver count devices."""

    spot: Spot
    call: str
    certain: bool
    only_asked: bool


@dataclass
class Mask:
    """One assignment of CUDA_VISIBLE_DEVICES."""

    spot: Spot
    value: Val
    text: str
    after: CudaUse | None
    certain: bool
    index: Spot | None = None
    index_text: str = ""
    same_value: bool = False


@dataclass
class Device:
    """A device chosen by number."""

    spot: Spot
    call: str
    value: Val


@dataclass
class Init:
    """A call of init_process_group."""

    spot: Spot
    backend: str | None
    rank: Val | None
    rank_spot: Spot | None
    world: Val | None
    port: Val | None
    port_spot: Spot | None
    certain: bool
    thread: ThreadRun | None


@dataclass
class ThreadRun:
    """A thread of the process, from its start."""

    spot: Spot
    how: str
    function: str
    certain: bool
    made: Spot
    handler: bool = False
    inits: list[Init] = field(default_factory=list)
    launches: list[tuple[Spot, str]] = field(default_factory=list)


@dataclass
class Launch:
    """Processes started by this one."""

    spot: Spot
    api: str
    method: Literal["spawn", "fork", "forkserver", "default"]
    guarded: bool
    processes: int | None
    certain: bool
    top: ast.stmt | None
    inherited: CudaUse | None = None
    children: list[Process] = field(default_factory=list)


@dataclass
class Process:
    """State and history of one imagined process."""

    key: tuple[object, ...]
    started_by: StartedBy
    rank: int
    local: int
    node: int
    world: int
    initialized: bool = False
    env: dict[str, Val] = field(default_factory=dict)
    env_spots: dict[str, Spot] = field(default_factory=dict)
    trace: list[Item] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    cuda: CudaUse | None = None
    asked: CudaUse | None = None
    own_cuda: CudaUse | None = None
    masks: list[Mask] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    default_cuda: list[Spot] = field(default_factory=list)
    inits: list[Init] = field(default_factory=list)
    threads: list[ThreadRun] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    start_method: str = "default"
    opaque: int = 0
    kept_device: bool = False
    proven_size: bool = False
    """The code itself gives how many processes run this, and it is at least two."""
    named: bool = False
    """Walked without a caller, so its arguments are guesses by name."""

    @property
    def first_cuda(self) -> CudaUse | None:
        """What initialised CUDA first, else what only asked."""
        return self.cuda or self.asked


def events(items: list[Item]) -> Iterator[Event]:
    """Every event in a trace."""
    for item in items:
        if isinstance(item, Event):
            yield item
        elif isinstance(item, Choice):
            yield from events(item.then)
            yield from events(item.other)
        elif isinstance(item, Loop):
            yield from events(item.body)
