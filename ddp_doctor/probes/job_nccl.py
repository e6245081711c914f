"""NCCL in a running job: the calls its processes stand in, and the report of NCCL's own RAS service."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.job import Connection, Listener, Process
from ddp_doctor.facts.nccl_live import NcclCall, RasCommunicator
from ddp_doctor.facts.process import Stack
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, Subject
from ddp_doctor.probes.communicator import version_text
from ddp_doctor.readers.nccl_ras import read_ras

LIBRARY = r"/libnccl[^/]*\.so"
ENTRIES = (
    r"^(ncclCommInit\w*|ncclCommSplit|ncclCommShrink|ncclGroupEnd|ncclGetUniqueId|ncclAsyncJobMain"
    r"|nccl(AllReduce|Broadcast|Bcast|Reduce|AllGather|ReduceScatter|Send|Recv))$"
)
JOB = "ncclAsyncJobMain"
"""What NCCL's own thread begins with; the thread that came in by another call waits for it."""
RAS_ADDRESS = "localhost:28028"
SECONDS = 4.0
RAS_SECONDS = 2.0


def take(host: Host, known: Facts) -> Iterator[Observation]:
    """What the processes that have libnccl loaded, and do not run, do in it; and what RAS says where it is theirs."""
    moving = {stack.subject.pid for stack in known[Stack] if stack.moved}
    loaded = {each.pid: each for each in known[Process] if each.nccl and not each.gone}
    if not loaded:
        return
    still = [pid for pid in sorted(loaded) if pid not in moving]
    request = {"pids": still, "library": LIBRARY, "entries": ENTRIES, "seconds": SECONDS}
    answer = host.ask("native_calls", request, seconds=SECONDS + 1) if still else None
    for message in answer.messages if answer else ():
        process = loaded[message["pid"]]
        if message.get("library") and message["start_time"] == process.subject.start_time:
            yield from _calls(process, message)
    yield from _ras(host, loaded, known)


def _calls(process: Process, message: Mapping[str, Any]) -> Iterator[NcclCall]:
    """The thread that is deepest in it, since others wait for a thread of NCCL's own; or that none is."""
    threads: list[dict[str, Any]] = sorted(
        message["threads"], key=lambda each: (each["frames"][-1] != JOB, -len(each["frames"]))
    )
    frames: list[str] = list(threads[0]["frames"]) if threads else []
    if len(threads) > 1 and frames[-1] == JOB:
        frames[-1:] = next((each["frames"][-1:] for each in threads if each["frames"][-1] != JOB), [])
    number = message.get("version")
    yield NcclCall(
        subject=Subject(host=process.subject.host, pid=process.pid, start_time=process.subject.start_time),
        source=f"pid {process.pid}, return addresses on its stacks",
        library=message["library"],
        version=version_text(number) if number else "",
        frames=tuple(frames),
        does=threads[0]["does"] if threads else "",
        unseen=str(message.get("error", "")),
    )


def _ras(host: Host, loaded: Mapping[int, Process], known: Facts) -> Iterator[Observation]:
    """Ask RAS where every listener on its port is a process of these jobs."""
    asked = set()
    for process in loaded.values():
        port = process.variables.get("NCCL_RAS_ADDR", RAS_ADDRESS).rpartition(":")[2]
        listeners = [each for each in known[Listener] if str(each.port) == port and each.network == process.network]
        own = [each for each in known[Connection] if each.state == "LISTEN" and str(each.local_port) == port]
        own = [each for each in own if each.subject.pid in loaded and each.network == process.network]
        if not own or (process.network, port) in asked or any(each.owner not in loaded for each in listeners):
            continue
        asked.add((process.network, port))
        question = {"address": own[0].local, "port": int(port), "seconds": RAS_SECONDS}
        answer = host.ask("nccl_ras", question, seconds=RAS_SECONDS + 0.5, python=inside(process))
        text = "".join(message.get("text", "") for message in answer.messages)
        where = f"NCCL RAS at {own[0].local}:{port}"
        try:
            yield from read_ras(text, where, host.name)
        except ValueError as error:
            reason = str(answer.first.get("error") or answer.reason or error)
            yield RasCommunicator(subject=Subject(host=host.name), source=where, status="SILENT", lines=(reason,))


def inside(process: Process) -> tuple[str, ...] | None:
    """The start of a command that runs the doctor's own Python in a process's network; None where it is ours."""
    try:
        same = Path("/proc/self/ns/net").stat().st_ino == process.network
    except OSError:
        same = True
    if same or process.network is None:
        return None
    return ("nsenter", "--target", str(process.pid), "--net", "--", sys.executable or "python3", "-I", "-S")


PROBE = Probe(
    name="nccl-calls",
    gives=(NcclCall, RasCommunicator),
    builds_on=(Process, Connection, Listener, Stack),
    take=take,
    risk="network",
)
