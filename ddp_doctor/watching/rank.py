"""The watch over the rank that this process stands beside."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ddp_doctor.host import Host
from ddp_doctor.meeting.identity import state
from ddp_doctor.model import Report
from ddp_doctor.render import text
from ddp_doctor.running_job import examine_running
from ddp_doctor.watching.reports import collect_report, write_report
from ddp_doctor.watching.standing import PATIENCE, Look, Standing, first_look, look_at, pause_between_looks, settle

SECONDS_BETWEEN_ASKING = 0.05
SECONDS_PER_RANK = 0.7
"""Between the looks of two ranks of one node, so that they do not all examine at the same moment."""
SECONDS_TO_REPORT = 10.0
"""What the last of the node's ranks may take for its report once it was its turn, before the others no longer wait."""
SECONDS_TO_HOLD = 2.0
"""For so long a rank that was stopped waits until the others of its node are, and all end."""
SECONDS_TO_ABORT = 5.0


class Rank:
    """One rank, seen from the process beside it."""

    def __init__(self, pid: int, after: float, began: float, *, abort: bool) -> None:
        self._pid = pid
        self._after = after
        self._began = began
        self._abort = abort
        self._held = False
        self._host: Host | None = None
        # as seen all along: a rank may leave its block, or be aborted
        self._inside = _known()
        self._number = self._inside.get(pid, 0)

    def stop(self) -> None:
        """End what is under way; nothing of it stays."""
        if self._host is not None:
            self._host.close()
        if self._held:
            # it has left its block in the moment in which it was stopped
            _send(self._pid, signal.SIGCONT)

    def watch(self) -> None:
        """Look until all ranks are through or the job hangs, and then say so."""
        # those of a lower number first
        turn = sum(number < self._number for number in self._inside.values())
        self._sleep_until(first_look(self._began, self._after) + turn * SECONDS_PER_RANK)
        told_slow = False
        while True:
            seen = settle(self._look, self._after, note=self._note, began=self._began)
            if seen.standing is Standing.HUNG:
                self._report(seen)
                break
            if seen.standing not in (Standing.EARLY, Standing.SLOW):
                return
            if not told_slow and time.monotonic() - self._began >= PATIENCE * self._after:
                told_slow = True
                self._report(seen)
            time.sleep(pause_between_looks(self._after))
        examined = _mark(EXAMINED, self._pid, int(self._abort))
        if self._abort:
            self._wait_for_the_others((len(self._inside) - turn) * SECONDS_PER_RANK + SECONDS_TO_REPORT)
            self._end_rank()
        if examined is not None:
            examined.close()

    def _look(self) -> Look:
        self._inside |= _known()
        self._host = Host(60.0)
        return look_at(examine_running("watch", self._host, (self._pid,)))

    def _note(self, slow: str) -> None:
        if self._number <= min(self._inside.values(), default=0):
            _say(f"not hung after {self._after:g} s: {slow}, the others wait for it")

    def _report(self, seen: Look) -> None:
        report = seen.report
        number = seen.pids.get(self._pid)
        name = f"rank {number}" if number is not None else f"PID {self._pid}"
        if self._speaks(seen):
            slow = "" if seen.standing is Standing.HUNG else "; it is slow, not hung"
            _say(f"{name} has not finished initialisation {self._after:g} s after it began{slow}")
            sys.stderr.write(text.render(report))
            sys.stderr.flush()
            collect_report(report)
        else:
            path = self._write(report, f"rank{number}" if number is not None else f"pid{self._pid}")
            if path is not None:
                _say(f"{name} has not finished initialisation either; its report is {path}")

    def _write(self, report: Report, name: str) -> Path | None:
        folder = os.environ.get("DDP_DOCTOR_REPORT_DIR")
        try:
            return write_report(report, Path(folder) if folder else None, name)
        except OSError as error:
            _say(f"cannot write the report of {name}: {error.strerror}")
            return None

    def _speaks(self, seen: Look) -> bool:
        """Whether no lower rank of the job is in a block like this one."""
        mine = seen.pids.get(self._pid)
        if mine is None:
            return True
        return not any(rank < mine and pid in self._inside for pid, rank in seen.pids.items())

    def _wait_for_the_others(self, seconds: float) -> None:
        """Until all ranks of the node were examined, and then until all of them that are to end stand still.

        A rank that ends while others are examined would look like the cause; and one that still runs when another ends
        would leave with an error of their connection before its own signal comes.
        """
        others = self._inside.keys() - {self._pid}
        _wait(seconds, lambda: not any(map(_lives, others - _marked(EXAMINED).keys())))
        ending = [pid for pid, aborts in _marked(EXAMINED).items() if aborts and pid in others]
        if ending:
            self._held = True
            _send(self._pid, signal.SIGSTOP)
            _wait(SECONDS_TO_HOLD, lambda: not any(_lives(pid) and state(pid) != "T" for pid in ending))

    def _end_rank(self) -> None:
        _say(f"on_hang='abort': ending PID {self._pid}")
        for number in (signal.SIGABRT, signal.SIGKILL):
            # where it is stopped the signal waits, and is the first that it sees when it goes on
            if not (_send(self._pid, number) and _send(self._pid, signal.SIGCONT)):
                return
            self._held = False
            time.sleep(SECONDS_TO_ABORT)

    @staticmethod
    def _sleep_until(moment: float) -> None:
        time.sleep(max(0.0, moment - time.monotonic()))


INSIDE = "ddp-doctor watches "
EXAMINED = "ddp-doctor examined "


def _known() -> dict[int, int]:
    """PID -> local number, of the ranks of this node that are in a block, as sentry.py makes them known."""
    return _marked(INSIDE)


def _mark(name: str, pid: int, number: int) -> socket.socket | None:
    """Let the processes beside other ranks see this of that rank: an abstract name that ends with the socket."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0{name}{pid} {number}")
    except OSError:
        mark.close()
        return None
    return mark


def _marked(name: str) -> dict[int, int]:
    """PID -> the number beside it, of the abstract names that start like this."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    names = [line.partition(f"@{name}")[2].split() for line in lines]
    return {int(words[0]): int(words[1]) for words in names if len(words) == 2 and all(map(str.isdigit, words))}


def _lives(pid: int) -> bool:
    """Whether the process is there and is not a zombie."""
    return state(pid) not in ("", "Z", "X")


def _send(pid: int, number: int) -> bool:
    """Send a signal; whether the process is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _wait(seconds: float, until: Callable[[], bool]) -> None:
    give_up = time.monotonic() + seconds
    while not until() and time.monotonic() < give_up:
        time.sleep(SECONDS_BETWEEN_ASKING)


def _say(words: str) -> None:
    sys.stderr.write(f"ddp-doctor: {words}\n")
    sys.stderr.flush()
