"""Stacks of running Python processes, taken by py-spy. The process is paused for some milliseconds, never changed."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.process import Stack
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.readers.pyspy_dump import in_torch_distributed, read_dump


def stacks_probe(pids: Iterable[int]) -> Probe:
    """The probe for these processes; each that cannot be read is an `Absent` with the reason and the command to try."""
    wanted = tuple(pids)

    def take(host: Host, known: Facts) -> Iterator[Observation]:
        for pid in wanted:
            yield from _stacks(host, pid)

    return Probe(name="stacks", gives=(Stack,), take=take)


def start_time(host: Host, pid: int) -> int | None:
    """Clock ticks from boot to the start of a process, None if there is no such process."""
    stat = host.kernel(f"/proc/{pid}/stat")
    return int(stat.rsplit(")", 1)[1].split()[19]) if stat else None


def _stacks(host: Host, pid: int) -> Iterator[Observation]:
    started = start_time(host, pid)
    subject = Subject(host=host.name, pid=pid, start_time=started)
    if started is None:
        yield Absent(kind=Stack.kind(), about=subject, status="absent", reason=f"there is no process {pid}")
        return
    argv = [_py_spy(), "dump", "--json", "--pid", str(pid)]
    if _has_stopped_or_blocked_thread(host, pid):
        # py-spy would wait for a D thread to stop, and freeze all others meanwhile
        argv.append("--nonblocking")
    answer = host.run(argv)
    if answer.status == "ok" and answer.code == 0:
        try:
            stacks = read_dump(answer.printed, f"pid {pid}", subject)
            if any(in_torch_distributed(frame) for stack in stacks for frame in stack.frames):
                again = host.run([*argv, "--locals"])
                if again.code == 0:
                    stacks = read_dump(again.printed, f"pid {pid}", subject)
        except ValueError as error:
            yield Absent(kind=Stack.kind(), about=subject, status="crashed", reason=f"py-spy on PID {pid}: {error}")
            return
        if start_time(host, pid) == started:
            yield from stacks
        else:
            yield Absent(kind=Stack.kind(), about=subject, status="absent", reason=f"PID {pid} ended meanwhile")
        return
    yield _refused(host, pid, subject, answer.status, answer.reason or answer.printed.strip())


def _refused(host: Host, pid: int, subject: Subject, status: str, why: str) -> Absent:
    me = host.kernel("/proc/self/status") or ""
    theirs = host.kernel(f"/proc/{pid}/status") or ""
    scope = (host.kernel("/proc/sys/kernel/yama/ptrace_scope") or "0").strip()
    retry = f'run "sudo {sysconfig.get_path("scripts")}/ddp-doctor attach {pid}"'
    if "ermission" in why:
        if _uid(me) != _uid(theirs):
            reason = f"cannot read PID {pid}: it belongs to another user (uid {_uid(theirs)})"
        elif scope != "0":
            reason = f"cannot read PID {pid}: kernel.yama.ptrace_scope is {scope}"
        else:
            reason = f"cannot read PID {pid}: this process lacks the capability SYS_PTRACE"
            retry = "in Docker add --cap-add SYS_PTRACE, or " + retry
        return Absent(kind=Stack.kind(), about=subject, status="denied", reason=reason, how_to_get=retry)
    last = why.splitlines()[-1] if why else status
    return Absent(
        kind=Stack.kind(),
        about=subject,
        status="timeout" if status == "timeout" else "absent",
        reason=f"py-spy on PID {pid}: {last}",
        how_to_get=retry,
    )


def _uid(status: str) -> str:
    return next((line.split()[1] for line in status.splitlines() if line.startswith("Uid:")), "?")


def _has_stopped_or_blocked_thread(host: Host, pid: int) -> bool:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False
    stats = (host.kernel(f"{thread}/stat") for thread in threads)
    return any(stat.rsplit(")", 1)[1].split()[0] in "DTt" for stat in stats if stat)


def _py_spy() -> str:
    ours = Path(sysconfig.get_path("scripts"), "py-spy")
    return str(ours) if ours.exists() else shutil.which("py-spy") or "py-spy"
