"""`with ddp_doctor.watch():` in a training script: a small process waits beside the block and examines a hang.

No thread of the script could: where the main thread keeps the GIL in C, none runs. So the process is started before the
block, sleeps, and only when the time is up loads anything. Imports of this module cost every rank: they stay few.
"""

from __future__ import annotations

import _thread
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread
    from types import TracebackType

SECONDS_TO_END = 2.0
ASK_SECONDS = 0.1
ABORTS_AFTER = ("report", "abort")
PR_SET_PTRACER = 0x59616D61
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD = 1, 2, 9, 13, 15, 17
"""Of Linux on every processor but MIPS, Alpha and SPARC; importing signal costs more than all of this."""


class watch:  # noqa: N801 - reads as a statement: `with ddp_doctor.watch():`
    """While the block runs: nothing to see, unless initialisation takes longer than `after` seconds.

    Then the ranks of this job on this node are examined from outside, without stopping them. The lowest rank that hangs
    prints one report on stderr, the others write theirs to files in `$DDP_DOCTOR_REPORT_DIR`, else in a temporary folder
    that they name. `on_hang="abort"` ends this rank by SIGABRT after that; with `"report"` it goes on.

    `until` is called now and then, and ends the watch where it returns true: `until=dist.is_initialized` around a
    framework's `fit`, which creates the group itself. Without it the watch ends with the block, or when it has seen that
    all ranks are through. A job that is slow because a rank still works is not aborted. `DDP_DOCTOR=off`: nothing happens.
    Raises nothing but ValueError for wrong arguments.
    """

    def __init__(
        self, after: float = 120.0, until: Callable[[], object] | None = None, on_hang: str = "report"
    ) -> None:
        if not after > 0:
            raise ValueError(f"after is {after!r}: it takes seconds above 0")
        if until is not None and not callable(until):
            raise ValueError(f"until is {until!r}: it takes a function, such as torch.distributed.is_initialized")
        if on_hang not in ABORTS_AFTER:
            raise ValueError(f"on_hang is {on_hang!r}: it takes {' or '.join(map(repr, ABORTS_AFTER))}")
        self._after = after
        self._until = until
        self._on_hang = on_hang
        self._over = False
        self._asker: Thread | None = None
        self._mine = False

    def __enter__(self) -> watch:
        if os.environ.get("DDP_DOCTOR") != "off":
            self._mine = _beside.enter(self._after, self._on_hang)
            if self._mine and self._until is not None:
                import threading

                self._over = False
                self._asker = threading.Thread(target=self._ask, name="ddp-doctor until", daemon=True)
                self._asker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._asker is not None:
            self._asker.join(SECONDS_TO_END)
            self._asker = None
        self._end()

    def _end(self) -> None:
        if self._mine:
            self._mine = False
            _beside.leave()

    def _ask(self) -> None:
        import time

        while not self._over:
            try:
                over = self._until is not None and self._until()
            except Exception:  # what cannot be asked yet is not over
                over = False
            if over:
                self._end()
                return
            time.sleep(ASK_SECONDS)


class _Beside:
    """The one process beside this one, however many threads are inside a block."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._owner = 0
        self._inside = 0
        self._pid = 0
        self._alive = -1
        self._traced = False
        self._timed = False

    def enter(self, after: float, on_hang: str) -> bool:
        with self._lock:
            if self._owner != os.getpid():
                # a fork of a process inside a block: what is beside that one is not this one's
                self._owner, self._inside, self._pid = os.getpid(), 0, 0
            self._inside += 1
            if self._inside == 1:
                try:
                    self._start(after, on_hang)
                except (OSError, RuntimeError, ValueError, NotImplementedError):
                    self._floor(after)
            return True

    def leave(self) -> None:
        with self._lock:
            if self._owner != os.getpid() or self._inside == 0:
                return
            self._inside -= 1
            if self._inside == 0:
                self._stop()

    def _start(self, after: float, on_hang: str) -> None:
        scope = ptrace_scope()
        if scope == 1:
            # only ancestors may look into this process, and those it names: its launcher, and with it all that are
            # below the launcher, such as the processes beside the other ranks
            self._traced = let_trace(os.getppid() or os.getpid())
        elif scope > 1 and os.geteuid() != 0:
            self._floor(after)
        theirs, ours = os.pipe()
        here = os.path.dirname(os.path.abspath(__file__))
        settings = repr(
            {
                "rank": os.getpid(),
                "after": after,
                "abort": on_hang == "abort",
                "alive": theirs,
                "sentry": os.path.join(here, "sentry.py"),
                "stage": os.path.join(here, "beside_rank.py"),
                "path": [*sys.path, os.path.dirname(os.path.dirname(here))],
                "python": sys.executable or "python3",
            }
        )
        try:
            os.set_inheritable(theirs, True)
            self._pid = os.posix_spawn(
                sys.executable or "python3",
                [sys.executable or "python3", "-I", "-S", os.path.join(here, "sentry.py"), settings],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                ],
                setsigmask=[],
                setsigdef=[SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGCHLD],
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._alive = ours

    def _floor(self, after: float) -> None:
        """Where nobody can look in from outside, at least the stacks: a timer in C needs no GIL."""
        import faulthandler

        try:
            faulthandler.dump_traceback_later(after, file=2)
            self._timed = True
        except (OSError, RuntimeError, ValueError):
            pass

    def _stop(self) -> None:
        if self._timed:
            import faulthandler

            faulthandler.cancel_dump_traceback_later()
            self._timed = False
        if self._pid:
            try:
                _end(self._pid)
            finally:
                self._pid = 0
                os.close(self._alive)
        if self._traced:
            let_trace(0)
            self._traced = False


_beside = _Beside()


def _end(pid: int) -> None:
    """End a child and take its status, unless somebody else did."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        for number in (SIGTERM, SIGKILL):
            os.kill(pid, number)
            poll = select.poll()  # select() refuses descriptors above 1023, and training processes have many
            poll.register(descriptor, select.POLLIN)
            if poll.poll(1000 * SECONDS_TO_END):
                break
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
    finally:
        os.close(descriptor)


def ptrace_scope() -> int:
    """Who may look into a process: 0 the same user, 1 ancestors and whom it names, 2 root, 3 nobody."""
    try:
        with open(YAMA, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def let_trace(pid: int) -> bool:
    """Name the process that may, with all below it, look into this one; 0 takes that back."""
    import ctypes

    return bool(ctypes.CDLL(None).prctl(PR_SET_PTRACER, pid, 0, 0, 0) == 0)
