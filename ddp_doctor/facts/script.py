"""What a training script shows when it is read and not run.

Every kind points at a `Place` in the user's own code. `proven` is True only where the code itself leaves no other
reading; what depends on a run-time value is not proven. `rewrite` is a unified diff of the user's file that removes the
fault, or None where no mechanical rewrite is known to be right.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_doctor.model import Evidence, Fact

StartedBy = Literal["launcher", "spawn", "fork", "forkserver", "thread", "unknown"]
"""What brought the process to this line; `launcher` is the script itself, started once per rank or once."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the user's code."""

    path: str
    line: int
    code: str = ""

    @property
    def source(self) -> str:
        """The place as `path:line`."""
        return f"{self.path}:{self.line}"

    def evidence(self, kind: str, label: str = "") -> Evidence:
        """The line as a quotation; `label` says what it is."""
        return Evidence(fact=kind, source=self.source, value=f"{label}: {self.code}" if label else self.code)


class ScriptFact(Fact, frozen=True, kw_only=True):
    """What one line of a script shows."""

    at: Place

    def text(self) -> str:
        return self.at.code


class ScriptRead(Fact, frozen=True, kw_only=True):
    """That a script was read, and how far. `error` says why it could not be parsed, `complete` whether all was followed."""

    path: str
    lines: int = 0
    error: str = ""
    line: int | None = None
    """Where parsing stopped."""
    complete: bool = True
    distributed: bool = False
    """Whether something in it starts or joins a process group."""

    def text(self) -> str:
        return self.error or f"{self.lines} lines"


class ThreadedStart(ScriptFact, frozen=True, kw_only=True):
    """A thread whose code joins the default group or starts a launcher. One fact for all threads of one origin."""

    what: Literal["rank", "launcher"]
    how: str
    """The call that starts the thread, such as `threading.Thread`."""
    function: str
    call: Place
    """`init_process_group` or the launcher's call inside the thread."""
    launcher: str = ""
    ranks: tuple[int, ...] = ()
    """The ranks the threads pass, where reading shows them."""
    rank_from: Literal["each-thread", "environment", "literal", "unknown"] = "unknown"
    proven: bool = False
    rewrite: str | None = None
    lines: tuple[str, ...] = ()
    """The same rewrite as lines of code, for where no diff can be made."""


class SpawnCall(ScriptFact, frozen=True, kw_only=True):
    """Processes started by re-importing the main module (`spawn`, `forkserver`) or by the platform's default method."""

    api: str
    method: Literal["spawn", "forkserver", "default"]
    guarded: bool
    """Whether the call is reached only under `if __name__ == "__main__"`."""
    processes: int | None = None
    proven: bool = False
    rewrite: str | None = None


class ForkStart(ScriptFact, frozen=True, kw_only=True):
    """A fork whose child uses CUDA although its parent had asked CUDA something before."""

    api: str
    parent: Place
    parent_call: str
    child: Place
    child_call: str
    only_asked: bool = False
    """The parent only counted devices or asked whether there are any, which poisons a fork in most releases of torch."""
    method: Literal["fork", "default"] = "fork"
    proven: bool = False
    rewrite: str | None = None


class MaskAssignment(ScriptFact, frozen=True, kw_only=True):
    """`CUDA_VISIBLE_DEVICES` set by the script. `after` is where CUDA was used before, `index` a device index set later."""

    value: str
    per_rank: bool
    devices: int | None = None
    """How many devices the mask names, where that is known."""
    after: Place | None = None
    after_call: str = ""
    only_asked: bool = False
    index: Place | None = None
    index_text: str = ""
    same_value: bool = False
    """The device index is the very value the mask was set to."""
    distributed: bool = False
    proven: bool = False
    rewrite: str | None = None


class DeviceChoice(ScriptFact, frozen=True, kw_only=True):
    """A device chosen by number, and where the number comes from."""

    call: str
    origin: Literal["local-rank", "global-rank", "argument", "literal", "modulo", "other"]
    rewrite: str | None = None


class GroupStart(ScriptFact, frozen=True, kw_only=True):
    """A call that joins the default group, with what reading shows of its arguments."""

    backend: str = ""
    started_by: StartedBy = "launcher"
    rank: int | None = None
    rank_from: Literal["environment", "literal", "argument", "unknown"] = "unknown"
    world_size: int | None = None
    """Where the code gives it as a literal."""
    processes: int | None = None
    """How many processes run this line, where the code gives it as a literal."""
    device_chosen: bool = True
    default_device: Place | None = None
    """A use of the default CUDA device where no process chose one."""
    same_rank: bool = False
    """Every process that runs this line passes the same rank."""
    rank_place: Place | None = None
    rank_rewrite: str | None = None
    device_rewrite: str | None = None


class PortChoice(ScriptFact, frozen=True, kw_only=True):
    """A master address or port that each rank chooses by itself, and the call that makes it differ."""

    variable: str
    chosen: str
    started_by: StartedBy
    proven: bool = False
    rewrite: str | None = None


class ConditionalCollective(ScriptFact, frozen=True, kw_only=True):
    """A collective that some ranks reach and others do not; `at` is where the ranks part company."""

    call: str
    inner: Place | None = None
    """The collective itself, where `at` only calls it."""
    condition: Place | None = None
    reached_by: tuple[int, ...] = ()
    missed_by: tuple[int, ...] = ()
    leaving: str = ""
    """The statement by which ranks leave at the condition, where the call stands behind it."""
    proven: bool = False
    rewrite: str | None = None


class GroupCreation(ScriptFact, frozen=True, kw_only=True):
    """A `new_group` that not all ranks call alike: only some reach it, or they name different members."""

    fault: Literal["some-ranks", "different-members"]
    inner: Place | None = None
    condition: Place | None = None
    members: tuple[tuple[int, str], ...] = ()
    """A rank and the members it names, as far as reading shows."""
    proven: bool = False
    rewrite: str | None = None


KINDS: tuple[type[ScriptFact], ...] = (
    ThreadedStart,
    SpawnCall,
    ForkStart,
    MaskAssignment,
    DeviceChoice,
    GroupStart,
    PortChoice,
    ConditionalCollective,
    GroupCreation,
)
"""What every reading of a script looks for."""
