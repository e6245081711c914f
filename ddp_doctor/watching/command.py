"""Runs a command as if nothing were around it, with an observer of its ranks beside it.

Three processes, and more where seats.py is needed: this one starts the command, waits for it and passes signals on; a
listener in the same process group hears which signals the whole group got, so that none reaches the command twice; the
observer, in a session of its own, examines. The command inherits terminal, descriptors, group and environment as they are.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import shutil
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ddp_doctor.watching.seats import Seated, start_below_seats, statuses
from ddp_doctor.watching.tree import adopt_orphans, children_of_all, end_all_below, end_with, reap, send

KILLED, FAILED, NOT_EXECUTABLE, NOT_FOUND = 124, 125, 126, 127
PASSED_ON = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
    signal.SIGTSTP, signal.SIGALRM, signal.SIGWINCH,
)  # fmt: skip
Mask = Collection[int | signal.Signals]
FROM_THE_KERNEL = 0x80
"""si_code of a signal that a terminal sent: it went to the whole group."""
SECONDS_TO_ECHO = 0.1
Observe = Callable[[Callable[[], list[int]], tuple[str, ...]], bool]


def run_watched(command: Sequence[str], observe: Observe, *, py_spy: str = "", seats: int = 0) -> int:
    """Run a command to its end; its exit code, or 124, 126, 127. Where a signal ended it, that ends this process too.

    `observe` runs in a process of its own, is given a function that lists the PIDs to look below and the command that
    stands for py-spy (empty: py-spy itself), and says whether the command is to be killed. With `seats` the command is
    started below so many processes that can become `py_spy`.
    """
    waited_for = {signal.SIGCHLD, *PASSED_ON}
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    adopt_orphans()
    seated = None
    try:
        if seats:
            seated = start_below_seats(lambda: _start(command, usual), py_spy, seats)
        child = seated.command if seated else _start(command, usual)
    except OSError as error:
        _say(f"cannot run {command[0]}: {error.strerror}")
        return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
    # a reader of the command's output must not wait for us
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    beside = _Beside(child, seated, *_listener(waited_for))
    beside.observer = _observer(beside, observe, usual)
    status, killed = _wait(beside, waited_for)
    send([beside.observer, beside.listener, *(seated.seats if seated else ())], signal.SIGKILL)
    if killed:
        return KILLED
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


@dataclass
class _Beside:
    """The command, and the processes around and beside it."""

    command: int
    seated: Seated | None
    listener: int
    heard: int
    """The descriptor at which the listener tells what it hears."""
    observer: int = 0

    def reap(self) -> dict[int, int]:
        """PID -> wait status of what ended or was stopped; of a command below seats its parent tells it."""
        return {**reap(), **(statuses(self.seated.statuses) if self.seated else {})}

    def watched(self) -> list[int]:
        """The command, and whom its children left behind: those are children of the process that adopts orphans."""
        own = {self.listener, self.observer, os.getpid(), *(self.seated.seats if self.seated else ())}
        top = os.getppid()
        return [self.command, *(each for each in children_of_all()[top] if each not in own and each != self.command)]


def _start(command: Sequence[str], mask: Mask) -> int:
    """Start the command as a shell would: Python's own settings of signals are not handed on."""
    default = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(command[0], list(command), os.environ, setsigmask=mask, setsigdef=default)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    script = ["sh", shutil.which(command[0]) or command[0], *command[1:]]
    return os.posix_spawn("/bin/sh", script, os.environ, setsigmask=mask, setsigdef=default)


def _listener(waited_for: Mask) -> tuple[int, int]:
    """A process of this group that writes the numbers of the signals it gets; its PID and the descriptor to read."""
    read, write = os.pipe()
    me = os.getpid()
    pid = os.fork()
    if pid:
        os.close(write)
        os.set_blocking(read, False)
        return pid, read
    try:
        end_with(me)
        while True:
            os.write(write, bytes([signal.sigwait(waited_for)]))
    finally:
        os._exit(0)


def _observer(beside: _Beside, observe: Observe, mask: Mask) -> int:
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        end_with(me)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        kill = observe(beside.watched, beside.seated.py_spy if beside.seated else ())
        os._exit(KILLED if kill else 0)
    except BaseException as error:
        _say(f"the watch over the command failed, the command goes on: {type(error).__name__}: {error}")
    finally:
        os._exit(FAILED)


def _wait(beside: _Beside, waited_for: Mask) -> tuple[int, bool]:
    """Wait for the command and pass signals on; its wait status, and whether it was killed because it hung."""
    while True:
        ended = beside.reap()
        status = ended.get(beside.command)
        if status is not None and not os.WIFSTOPPED(status):
            return status, False
        if status is not None and os.WSTOPSIG(status) != signal.SIGSTOP:
            # the terminal stopped it: let the shell see that this job is stopped
            os.kill(os.getpid(), signal.SIGSTOP)
        if beside.observer in ended and os.waitstatus_to_exitcode(ended[beside.observer]) == KILLED:
            if beside.seated:
                send(beside.seated.seats, signal.SIGKILL)
            left = end_all_below(os.getpid(), (beside.listener,))
            _say("the job hangs: ended it and everything it had started (--kill)")
            if left:
                _say(f"these do not die: PID {', '.join(map(str, left))}")
            return 0, True
        got = signal.sigwaitinfo(waited_for)
        if got.si_signo != signal.SIGCHLD and not _went_to_all(got, beside.heard):
            send([beside.command], got.si_signo)


def _went_to_all(got: signal.struct_siginfo, heard: int) -> bool:
    """Whether a signal was sent to the process group, so that the command has it already."""
    if got.si_code == FROM_THE_KERNEL:
        return True
    while select.select([heard], [], [], SECONDS_TO_ECHO)[0]:
        echo = os.read(heard, 1)
        if not echo or echo[0] == got.si_signo:
            return bool(echo)
    return False


def _die_of(number: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _say(text: str) -> None:
    try:
        os.write(2, f"ddp-doctor: {text}\n".encode())
    except OSError:
        pass
