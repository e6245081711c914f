"""Giving way to a job that is looked at: the examination takes the CPU time that nobody else wants, where there is some."""

from __future__ import annotations

import os
import signal
import time

from ddp_doctor.capability import CAP_SYS_NICE, has_capability

SECONDS_OF_SAMPLE = 0.05
LEAST_IDLE_CPUS = 0.5
SECONDS_OF_WAY = 1.0
"""An examination that takes longer may be one that gets no CPU, and goes on in the usual class."""


def give_way() -> bool:
    """Let whatever else wants a CPU come before this process and all it starts; says whether it does from now on.

    A process in the idle class gets next to nothing of a CPU that is full. So it is entered only where CPUs were idle a
    moment ago, and by whom the kernel lets out of it again. Call it before any thread is started: it forks.
    """
    if not _may_leave():
        return False
    before, began = _idle_seconds(), time.monotonic()
    time.sleep(SECONDS_OF_SAMPLE)
    after, ended = _idle_seconds(), time.monotonic()
    if before is None or after is None or after - before < LEAST_IDLE_CPUS * (ended - began):
        return False
    doctor = os.getpid()
    try:
        if os.fork() == 0:
            _end_it(doctor)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        return False
    return True


def _may_leave() -> bool:
    """Whether the kernel lets this process out of the idle class again."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib costs more
            return has_capability(file.read(), CAP_SYS_NICE) and hasattr(os, "SCHED_IDLE")
    except OSError:
        return False


def _idle_seconds() -> float | None:
    """What the CPUs that this process may use have idled since boot, summed up; None where the kernel does not tell."""
    try:
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - as above
            rows = [line.split() for line in file if line.startswith("cpu")]
        return sum(int(row[4]) + int(row[5]) for row in rows if row[0] in usable) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _end_it(doctor: int) -> None:
    """In a process of its own: take the doctor and all below it out of the idle class once its second is over."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # whoever reads the doctor's output must not wait for this process
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        over = time.monotonic() + SECONDS_OF_WAY
        while os.getppid() == doctor and time.monotonic() < over:
            time.sleep(0.05)
        if os.getppid() != doctor:
            return
        from ddp_doctor.watching.tree import below

        for _ in range(2):  # the second time for what was started during the first
            for pid in (doctor, *below(doctor)):
                _raise(pid)
    finally:
        os._exit(0)


def _raise(pid: int) -> None:
    """Take all threads of a process out of the idle class, and its session out of the last place among sessions."""
    try:
        for task in map(int, os.listdir(f"/proc/{pid}/task")):
            if os.sched_getscheduler(task) == os.SCHED_IDLE:
                os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))
                if task == pid == os.getsid(pid):
                    with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
                        file.write("0")
    except OSError:
        pass
