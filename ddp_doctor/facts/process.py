"""Stacks of processes and what a thread that acts as a rank is doing."""

from __future__ import annotations

import msgspec

from ddp_doctor.model import INIT, Fact, RankRow, Stage, Wait


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
    ended: str = ""
    """The exception that ended the thread, where the frames are a traceback; empty for a live one."""
    process: str = ""
    """The file it was read from, where no PID is known."""
    process_cpu: float | None = None
    """The share of one CPU that its process used while it was looked at."""
    gloo_cpu: float | None = None
    """The part of it that the threads used which move Gloo's data."""
    moved: bool | None = None
    """Whether it had moved at a second look; None where there was only one."""

    def text(self) -> str:
        shown = self.frames[:3]
        return " <- ".join(f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})" for frame in shown)


class RankThread(Fact, frozen=True, kw_only=True):
    """A thread that stands in, or died in, the initialisation of a process group: one per thread and group.

    `at_least` and `at_most` bound its stage. `group` is `default` for the default group, else the group's name.
    `group_number` counts the default groups of one process from 0 (store keys start with `/default_pg/<number>/`).
    `process` tells processes apart where no PID is known: the log the thread's last words stand in.
    """

    at_least: Stage
    at_most: Stage
    group: str = "default"
    group_number: int | None = None
    rank: int | None = None
    world_size: int | None = None
    thread_name: str = ""
    process: str = ""
    where: str = ""
    """The user's own innermost frame, `train.py:12 worker`."""
    call: str = "init_process_group"
    ended: str = ""
    """The exception it died of; empty while it waits."""
    waits_for: str = ""
    """The store key it waited for."""

    @property
    def in_init(self) -> bool:
        """Whether the thread is certainly inside the initialisation of a group."""
        return {self.at_least, self.at_most} <= INIT

    @property
    def process_key(self) -> tuple[str, str, int | None, int | None]:
        """The identity of its process: by PID and start time, or by log."""
        return (self.process, *self.subject.process)

    @property
    def row(self) -> RankRow:
        """The thread as a rank of a report."""
        return RankRow(
            rank=self.rank,
            host=self.subject.host,
            pid=self.subject.pid,
            stage=self.at_least.label,
            state="exited" if self.ended else "waiting",
            where=self.where,
            call=self.call,
            waits_for=(Wait(key=self.waits_for),) if self.waits_for else (),
        )

    def text(self) -> str:
        name = f'"{self.thread_name}"  ' if self.thread_name else ""
        end = f"died: {self.ended}" if self.ended else "waiting"
        caller = f" <- {self.where}" if self.where else ""
        return f"{name}{self.call}{caller}   {end}"


class StoreWait(Fact, frozen=True, kw_only=True):
    """A log line that says which store keys somebody waited for in vain. `process` is the log, or the PID in the line."""

    keys: tuple[str, ...]
    process: str
    milliseconds: int | None = None
    rank: int | None = None
    line: str = ""

    def text(self) -> str:
        return self.line or f"waited for {', '.join(self.keys)}"
