"""The processes below one: who they are, and how all of them end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SECONDS_TO_TERMINATE = 3.0
SECONDS_TO_DIE = 10.0


def adopt_orphans() -> None:
    """From now on processes below this one that lose their parent become children of this one, not of init."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with(parent: int) -> None:
    """The kernel kills this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children_of_all() -> dict[int, list[int]]:
    """PID -> PIDs of its children, of all processes but zombies; /proc/PID/stat never blocks."""
    found: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state not in (b"Z", b"X"):
                found[int(parent)].append(int(entry.name))
    return found


def below(pid: int, spared: Iterable[int] = ()) -> list[int]:
    """Everybody below a process, except those spared and what is below them."""
    children = children_of_all()
    left_out = set(spared)
    found: list[int] = []
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in left_out:
                found.append(child)
                queue.append(child)
    return found


def end_all_below(pid: int, spared: Iterable[int] = ()) -> list[int]:
    """End everybody below this process: SIGTERM, and SIGKILL for who is left after 3 s; those that do not die."""
    give_up = time.monotonic() + SECONDS_TO_TERMINATE
    send(below(pid, spared), signal.SIGTERM, signal.SIGCONT)
    while time.monotonic() < give_up and below(pid, spared):
        time.sleep(0.05)
        reap()
    give_up = time.monotonic() + SECONDS_TO_DIE
    while (left := below(pid, spared)) and time.monotonic() < give_up:
        send(left, signal.SIGKILL)
        time.sleep(0.02)
        reap()
    return left


def send(pids: Iterable[int], *numbers: int) -> None:
    """Send signals to processes, some of which may be gone."""
    for pid in pids:
        for number in numbers:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass


def reap() -> dict[int, int]:
    """PID -> wait status, of children that ended or were stopped since."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found[pid] = status
