"""The ranks that met before init: what each says of itself, and who came."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.model import Fact


class Attendee(Fact, frozen=True, kw_only=True):
    """One rank before it joins the default group, as it describes itself. The subject holds its process and thread.

    `rank` and `world_size` are what init_process_group will be given; None where neither argument nor variable is a
    number. `address` and `port` are those of the store it will go to, empty for one that is no TCPStore.
    """

    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    address: str = ""
    port: str = ""
    init_method: str = ""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """The variables of its environment that change how a job starts, without secrets."""
    torch: str = ""
    nccl: str = ""
    cuda_build: str = ""
    """The CUDA version that its torch was built with, where torch was loaded; empty otherwise."""
    machine: str = ""
    """The kernel's boot id and network namespace: the same for ranks that can reach each other by 127.0.0.1."""
    main_thread: bool = True
    thread_name: str = ""
    started_by: Literal["spawn", "fork", "forkserver", ""] = ""
    """The method of multiprocessing that made this process; empty for any other start."""
    notebook: bool = False
    cuda: Literal["", "initialised", "bad-fork"] = ""
    """Whether this process has used CUDA, or was forked from one that had."""
    where: str = ""
    """The user's frame that asks, `train.py:12 training_func`."""
    script: str = ""
    cwd: str = ""
    gone: Literal["", "ended", "left", "stopped", "silent", "cut-off"] = ""
    """`ended`: its process was gone before the meeting was over; `left`: it went without waiting for the end; `stopped`:
    its process was stopped (state T) at the end; `silent`: its machine takes what is sent to it and says nothing any more;
    `cut-off`: what is sent to its machine does not arrive."""
    stayed_s: float = 0.0
    """Seconds between its coming and its going, where it has gone."""

    @property
    def key(self) -> tuple[str, int | None, int | None, int | None]:
        """The identity of the thread that attends."""
        return (*self.subject.process, self.subject.thread)

    @property
    def endpoint(self) -> tuple[str, str]:
        """Where it looks for the store."""
        return (self.address, self.port)

    @property
    def name(self) -> str:
        """`rank 3` where that is known, else `PID 4121`."""
        return f"rank {self.rank}" if self.rank is not None else f"PID {self.subject.pid}"

    def text(self) -> str:
        thread = "" if self.main_thread else f' thread "{self.thread_name}"'
        what = f"rank {self.rank} of world size {self.world_size}" if self.rank is not None else "no rank"
        at = f" at {self.address}:{self.port}" if self.port else f" at {self.init_method}" if self.init_method else ""
        return f"{what}{at}, PID {self.subject.pid}{thread}" + (f" <- {self.where}" if self.where else "")


class Attendance(Fact, frozen=True, kw_only=True):
    """Who came to the meeting before init, and who did not within `waited_s` seconds.

    `sure` says that one launcher started all who came, so that they are ranks of one job; without it they merely share
    a shell and a script. `by` is how they met.
    """

    world_size: int
    present: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    """Ranks that came and whose process ended before the meeting did."""
    stopped: tuple[int, ...] = ()
    """Ranks that came and whose process was stopped (state T) at the end."""
    waited_s: float = 0.0
    sure: bool = True
    by: Literal["alone", "socket", "port", "folder"] = "socket"
    ahead: bool = False
    """Whether rank 0 has opened its store already: the others have met and gone on before these ranks came."""
    lost: str = ""
    """Why the ranks of other hosts could not be met, where that is known."""
    place: str = ""
    """Where hosts meet, HOST:PORT of the doctor's own; empty where that was not looked up."""
    way: Literal["", "refused", "dropped", "unreachable"] = ""
    """How a connection there failed in the end, where the ranks of other hosts could not be met."""

    def text(self) -> str:
        return f"{len(self.present)} of {self.world_size} ranks came in {self.waited_s:.1f} s"
