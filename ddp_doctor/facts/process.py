"""Stacks of processes and what a thread that acts as a rank is doing."""

from __future__ import annotations

import msgspec

from ddp_doctor.model import Fact, Stage


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One Python frame. `arguments` holds only rank, world size, address and group name of torch.distributed frames."""

    function: str
    file: str = ""
    line: int = 0
    arguments: dict[str, str] = {}


class Stack(Fact, frozen=True, kw_only=True):
    """The Python frames of one thread, innermost first; the subject holds pid and thread."""

    thread_name: str = ""
    frames: tuple[Frame, ...] = ()
    active: bool | None = None
    owns_gil: bool | None = None

    def text(self) -> str:
        shown = self.frames[:3]
        return " <- ".join(f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})" for frame in shown)


class RankThread(Fact, frozen=True, kw_only=True):
    """A thread that stands in, or died in, the initialisation of a process group: one per thread and group.

    `group` is `default` for the default group, else its name. `group_number` counts default groups of the process from
    0 and comes from the store key or group name. `process` tells processes apart where the PID is not known (a log).
    """

    stage: Stage
    group: str = "default"
    group_number: int | None = None
    rank: int | None = None
    world_size: int | None = None
    thread_name: str = ""
    main_thread: bool | None = None
    process: str = ""
    where: str = ""
    """The user's own innermost frame, `train.py:12 worker`."""
    call: str = ""

    def text(self) -> str:
        return f'thread "{self.thread_name}" {self.call} <- {self.where}'
