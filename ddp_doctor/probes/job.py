"""A running job: its processes, sockets and stacks, read without stopping, signalling or changing any of them."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.job import (
    CallSite,
    Child,
    Connection,
    FileStoreState,
    JobView,
    Listener,
    Process,
    Resolved,
    StoreKeys,
    jobs,
)
from ddp_doctor.facts.nccl_live import NcclCall
from ddp_doctor.facts.process import Stack
from ddp_doctor.host import Answer, Host
from ddp_doctor.interpret.family import families, number
from ddp_doctor.interpret.job import interpret as interpret_job
from ddp_doctor.interpret.waits import TOGETHER
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes import job_files, job_gpus, job_nccl
from ddp_doctor.readers.call_site import read_call_site
from ddp_doctor.readers.pyspy_dump import KEPT_ARGUMENTS, read_threads
from ddp_doctor.signatures import Signature

LAUNCH_VARIABLES = (
    r"RANK$|WORLD_SIZE$|LOCAL_|GROUP_|ROLE_|NODE_RANK$|MASTER_|PET_|TORCH|GLOO_|NCCL_|TP_SOCKET|USE_LIBUV$|SLURMD?_"
    r"|OMPI_COMM|PMI_|MPI_LOCAL|PL_|LT_|ACCELERATE_|CUDA_VISIBLE_DEVICES$|LIGHTNING|RAY_|HOME$|XDG_CACHE_HOME$"
)
WAITING_FRAMES = r"torch/distributed/|torch/nn/parallel/|torch/multiprocessing/"
ARGUMENT_FRAMES = r"torch/distributed/|torch/multiprocessing/spawn\.py$"
DUMPS_AT_ONCE = 6
MOST_FILES = 12
MOST_KEYS = 128
SECONDS_PER_DUMP = 3.0
SECONDS_PER_NATIVE_DUMP = 20.0


def job_probes(
    pids: Iterable[int],
    *,
    every: bool,
    stacks: bool,
    native: bool,
    signatures: Callable[[], Sequence[Signature]] = tuple,
    py_spy: tuple[str, ...] = (),
    only: Mapping[str, str] | None = None,
) -> tuple[Probe, ...]:
    """The probes of the jobs that these processes belong to, or of every job on this node.

    Of `every` job the processes are left out that do not have the variables of `only`.
    `signatures` gives what the packs know of log lines; it is called where there is a log.
    `py_spy` is a command that stands for py-spy where it has to be started by somebody else.
    """
    asked = frozenset(pids)

    def take_processes(host: Host, known: Facts) -> Iterator[Observation]:
        del known
        yield from _processes(host, asked, every, only or {})

    def take_stacks(host: Host, known: Facts) -> Iterator[Observation]:
        yield from _stacks(host, known, native, py_spy or (installed_py_spy(),))

    probes = [Probe(name="processes", gives=(Process, Child, Connection, Listener), take=take_processes)]
    if stacks:
        probes.append(Probe(name="stacks", gives=(Stack,), builds_on=(Process,), take=take_stacks))
    probes += [job_nccl.PROBE, job_gpus.PROBE, job_files.probe(signatures)]
    probes.append(
        Probe(
            name="surroundings",
            gives=(CallSite, Resolved, FileStoreState, StoreKeys),
            builds_on=(Process, Connection, Listener, Stack, NcclCall),
            take=_surroundings,
            risk="network",
        )
    )
    return tuple(probes)


def _surroundings(host: Host, known: Facts) -> Iterator[Observation]:
    """What the ranks' own positions make worth a look: lines of the script, MASTER_ADDR, the store, the store's file."""
    with_ranks = known.plus(interpret_job(known))
    for view in jobs(with_ranks):
        members = {each.subject.pid for each in (*view.ranks, *view.others)}
        processes = {process.pid: process for process in known[Process] if process.pid in members}
        yield from _call_sites(host, view, processes)
        yield from _names(host, view, processes)
        yield from _files(host, view, processes)
        yield from _store(host, view, processes, known)


def _call_sites(host: Host, view: JobView, processes: Mapping[int, Process]) -> Iterator[Observation]:
    together = [rank for rank in view.ranks if rank.doing in TOGETHER and rank.beyond_init]
    if not together or not any(rank.waits_for for rank in together):
        return
    wanted: dict[str, set[str]] = {}
    for rank in together:
        process = processes[rank.subject.pid or 0]
        for place in rank.places[:4]:
            file, _, _ = place.rpartition(":")
            base = f"/proc/{process.pid}/root"
            whole = file if file.startswith("/") else f"{process.cwd}/{file}"
            wanted.setdefault(f"{base}{whole}", set()).add(place)
    files = dict.fromkeys(sorted(wanted)[:MOST_FILES])
    # ranks of one file system see one text: read each path once
    by_path = {path.partition("/root")[2]: path for path in files}
    texts = host.read(*by_path.values(), limit=1 << 20)
    for path in wanted:
        text = texts.get(by_path.get(path.partition("/root")[2], ""))
        for place in wanted[path] if text else ():
            file, _, line = place.rpartition(":")
            site = read_call_site(text or "", file, int(line))
            if site is not None:
                yield site


def _names(host: Host, view: JobView, processes: Mapping[int, Process]) -> Iterator[Observation]:
    seen = set()
    for rank in view.ranks:
        process = processes[rank.subject.pid or 0]
        if rank.doing != "refused" or not rank.master_address or is_address(rank.master_address):
            continue
        if (rank.master_address, process.network) in seen:
            continue
        seen.add((rank.master_address, process.network))
        answer = host.ask("resolve", {"names": [rank.master_address]}, python=_inside(host, process, mount=True))
        told = answer.first
        subject = Subject(host=host.name)
        if "addresses" in told or "error" in told:
            yield Resolved(
                subject=subject,
                source=f"the resolver, as PID {process.pid} sees it",
                name=rank.master_address,
                addresses=tuple(told.get("addresses", ())),
                error=told.get("error", ""),
                network=process.network,
            )
        elif answer.status == "timeout":
            yield Resolved(
                subject=subject,
                source=f"the resolver, as PID {process.pid} sees it",
                name=rank.master_address,
                error=f"the resolver gave {answer.reason}",
                network=process.network,
            )


def _files(host: Host, view: JobView, processes: Mapping[int, Process]) -> Iterator[Observation]:
    users = {rank.init_method[len("file://") :]: rank for rank in view.ranks if rank.init_method.startswith("file://")}
    if not users:
        return
    paths = {f"/proc/{rank.subject.pid}/root{path}": path for path, rank in users.items()}
    answer = host.ask("file_store", {"paths": list(paths)})
    for message in answer.messages:
        fields = {**message, "path": paths[message["path"]], "subject": {"host": host.name}}
        yield msgspec.convert({**fields, "source": fields["path"]}, FileStoreState)


def _store(host: Host, view: JobView, processes: Mapping[int, Process], known: Facts) -> Iterator[Observation]:
    """Ask the job's own store, and only at a port that is shown to be it."""
    waiting = [rank for rank in view.waiting if rank.doing in ("waiting-for-clients", "store-key", "gloo-mesh")]
    ports = {rank.master_port for rank in waiting}
    size = min(view.job.world_size or 0, MOST_KEYS)
    for listener in known[Listener]:
        process = processes.get(listener.owner or 0)
        if process is None or listener.port not in ports or process.state in ("T", "t", "D", "Z"):
            continue
        if not _hosts_store(process, listener, view, known[Connection]):
            continue
        address = "127.0.0.1" if listener.address in ("0.0.0.0", "::") else listener.address
        groups = sorted({number(rank.group) or 0 for rank in waiting})[:3]
        keys = [f"/default_pg/{group}//cpu//0/{rank}" for group in groups for rank in range(size)]
        question = {"address": address, "port": listener.port, "seconds": 1.0, "keys": keys}
        told = host.ask("ask_store", question, seconds=2.0, python=_inside(host, process)).first
        if told.get("verdict") == "store":
            there = set(told.get("present", ()))
            yield StoreKeys(
                subject=Subject(host=host.name),
                source=f"the store at {address}:{listener.port}",
                address=address,
                port=listener.port,
                answer="store",
                joined=told.get("joined"),
                present=tuple(key for key in keys if key in there),
                absent=tuple(key for key in keys if key not in there) if "present" in told else (),
                network=listener.network,
            )
        return


def _hosts_store(process: Process, listener: Listener, view: JobView, connections: Sequence[Connection]) -> bool:
    """Whether a listening socket is a TCPStore's: its process runs a store's thread, and means this port by MASTER_PORT.

    NCCL's bootstrap listens in rank 0 as well, and another rank's MASTER_PORT may be its port by mistake. A process
    without a MASTER_PORT of its own, as torchrun's agent, is a client of the store it hosts.
    """
    if not any(name.startswith("pt_tcpstore") for name in process.threads):
        return False
    own = next((each for each in (*view.ranks, *view.others) if each.subject.process == process.subject.process), None)
    if own is not None and own.master_port is not None:
        return own.master_port == listener.port
    return any(
        each.subject.pid == process.pid and each.peer_port == listener.port and each.state == "ESTABLISHED"
        for each in connections
    )


def _inside(host: Host, process: Process, *, mount: bool = False) -> tuple[str, ...] | None:
    """The start of a command that runs the doctor's own Python in a process's namespaces; None where they are ours."""
    flags = []
    if process.network != _namespace("self", "net"):
        flags.append("--net")
    if mount and _namespace(str(process.pid), "mnt") not in (None, _namespace("self", "mnt")):
        flags.append("--mount")
    if not flags:
        return None
    python = sys.executable or "python3"
    return ("nsenter", "--target", str(process.pid), *flags, "--", python, "-I", "-S")


def _namespace(pid: str, kind: str) -> int | None:
    try:
        return int(str(Path(f"/proc/{pid}/ns/{kind}").readlink()).partition("[")[2].rstrip("]"))
    except (OSError, ValueError):
        return None


def _processes(host: Host, asked: frozenset[int], every: bool, only: Mapping[str, str]) -> Iterator[Observation]:
    processes, children, connections, listeners, absents = _read(host, asked)
    found = families(processes, connections)
    wanted: set[int] = set(asked)
    for family in found:
        members = {process.pid for process in family.members}
        above = {pid for process in family.members for pid in process.ancestors}
        if asked & (members | above):
            wanted |= members
        elif every:
            wanted |= {process.pid for process in family.members if only.items() <= process.variables.items()}
    yield from (process for process in processes if process.pid in wanted)
    yield from (each for each in (*children, *connections) if each.subject.pid in wanted)
    networks = {process.network for process in processes if process.pid in wanted}
    yield from (each for each in listeners if each.network in networks)
    yield from (absent for absent in absents if absent.about.pid is None or absent.about.pid in wanted)


def _read(
    host: Host, asked: frozenset[int]
) -> tuple[list[Process], list[Child], list[Connection], list[Listener], list[Absent]]:
    """One worker reads all; a process that blocks it is left out and the rest is asked for again."""
    stuck: list[int] = []
    absents: list[Absent] = []
    tries = 0
    while True:
        request = {"pids": sorted(asked), "variables": LAUNCH_VARIABLES, "skip": stuck}
        answer = host.ask("processes", request)
        last = next((each["begin"] for each in reversed(answer.messages) if "begin" in each), None)
        done = any("done" in each for each in answer.messages)
        if answer.status == "crashed" and tries < 1:
            # processes come and go while they are read
            tries += 1
            continue
        if done or answer.status != "timeout" or last is None or last in stuck or not host.deadline:
            break
        stuck.append(last)
        absents.append(
            Absent(
                kind=Process.kind(),
                about=Subject(host=host.name, pid=last),
                status="timeout",
                reason=f"the memory map of PID {last} gave no answer: {answer.reason}",
            )
        )
    if not done:
        status = "crashed" if answer.status == "ok" else answer.status
        absents.append(Absent(kind=Process.kind(), about=Subject(host=host.name), status=status, reason=answer.reason))
    processes, children, connections, listeners = _decode(host, answer, asked)
    absents += [
        refused(host, process.pid, process.subject, "ok", "permission denied", kind=Connection.kind())
        for process in processes
        if not process.sockets_read and not process.gone
    ]
    return processes, children, connections, listeners, absents


def _decode(
    host: Host, answer: Answer, asked: frozenset[int]
) -> tuple[list[Process], list[Child], list[Connection], list[Listener]]:
    raw: dict[int, dict[str, Any]] = {}
    children: list[Child] = []
    connections: list[Connection] = []
    listeners: list[Listener] = []
    for message in answer.messages:
        if "process" in message:
            raw[message["process"]["pid"]] = message["process"]
        elif "more" in message and message["more"] in raw:
            raw[message["more"]].update({name: value for name, value in message.items() if name != "more"})
        elif "changed" in message:
            raw.pop(message["changed"], None)
            connections = [each for each in connections if each.subject.pid != message["changed"]]
        elif "sockets" in message:
            subject = _subject(host, raw[message["sockets"]])
            connections += [_connection(subject, message["network"], row) for row in message["rows"]]
        elif "child" in message and message["of"] in raw:
            fields = {name: value for name, value in message.items() if name in Child.__struct_fields__}
            subject = _subject(host, raw[message["of"]])
            fields |= {"pid": message["child"], "subject": msgspec.to_builtins(subject)}
            children.append(msgspec.convert({**fields, "source": f"/proc/{message['child']}"}, Child))
        elif "listener" in message:
            fields = {name: value for name, value in message.items() if name in Listener.__struct_fields__}
            fields |= {"port": message["listener"], "subject": {"host": host.name}}
            fields["source"] = "/proc/net/tcp"
            listeners.append(msgspec.convert(fields, Listener))
    processes = []
    for found in raw.values():
        fields = {name: value for name, value in found.items() if name in Process.__struct_fields__}
        fields["tasks"] = [
            dict(zip(("id", "name", "state", "wchan", "age_s"), row, strict=True)) for row in found.get("tasks", ())
        ]
        fields |= {"subject": msgspec.to_builtins(_subject(host, found)), "source": f"/proc/{found['pid']}"}
        fields["asked"] = found["pid"] in asked
        processes.append(msgspec.convert(fields, Process))
    return processes, children, connections, listeners


def _subject(host: Host, found: dict[str, Any]) -> Subject:
    return Subject(host=host.name, pid=found["pid"], start_time=found["start_time"])


def _connection(subject: Subject, network: int | None, row: list[Any]) -> Connection:
    local, local_port, peer, peer_port, state, unsent, unread = row
    return Connection(
        subject=subject,
        source=f"/proc/{subject.pid}/net/tcp",
        local=local,
        local_port=local_port,
        peer=peer,
        peer_port=peer_port,
        state=state,
        unsent=unsent,
        unread=unread,
        network=network,
    )


def _stacks(host: Host, known: Facts, native: bool, py_spy: tuple[str, ...]) -> Iterator[Observation]:
    """Stacks of every member but launch helpers; also how much CPU each used and which threads moved."""
    alive = {process.pid: process for process in known[Process] if not process.gone}
    each = SECONDS_PER_NATIVE_DUMP if native else SECONDS_PER_DUMP
    seconds = max(host.probe_seconds, each * (1 + len(alive) // DUMPS_AT_ONCE))
    request = {
        "pids": sorted(alive),
        "py_spy": py_spy,
        "arguments": sorted(KEPT_ARGUMENTS),
        "waiting": WAITING_FRAMES,
        "argument_frames": ARGUMENT_FRAMES,
        "each": each,
        "seconds": seconds,
        "at_once": DUMPS_AT_ONCE,
        "native": native,
    }
    if not alive:
        return
    answer = host.ask("stacks", request, seconds=seconds + 1)
    threads: dict[int, list[dict[str, Any]]] = {}
    heads: dict[int, dict[str, Any]] = {}
    for message in answer.messages:
        if "thread" in message:
            threads.setdefault(message["of"], []).append(message["thread"])
        elif "pid" in message:
            heads[message["pid"]] = message
    for pid, process in alive.items():
        head = heads.get(pid, {"error": answer.reason or "no answer", "late": answer.status == "timeout"})
        if "error" in head:
            yield refused(host, pid, process.subject, "timeout" if head.get("late") else "ok", head["error"])
        elif (head["start_time"], head["image"]) != (process.subject.start_time, process.image):
            reason = f"PID {pid} ended meanwhile" + (", or runs another program by now" if head["start_time"] else "")
            yield Absent(kind=Stack.kind(), about=process.subject, status="absent", reason=reason)
        else:
            moved = {int(thread) for thread in head["moved"] or ()} if head.get("moved") is not None else None
            for stack in read_threads(threads.get(pid, []), f"pid {pid}", process.subject):
                yield msgspec.structs.replace(
                    stack,
                    process_cpu=head.get("cpu"),
                    gloo_cpu=head.get("gloo_cpu"),
                    moved=None if moved is None else stack.subject.thread in moved,
                )


def refused(host: Host, pid: int, subject: Subject, status: str, why: str, kind: str = "") -> Absent:
    """Why a process's stacks, or what else `kind` says, could not be read, and the exact command that can."""
    kind = kind or Stack.kind()
    me = host.kernel("/proc/self/status") or ""
    theirs = host.kernel(f"/proc/{pid}/status") or ""
    scope = (host.kernel("/proc/sys/kernel/yama/ptrace_scope") or "0").strip()
    command = f"sudo {_own_command()} attach {pid}"
    retry = f'run "{command}"'
    if re.search(r"ermission|not permitted", why):
        if _field(me, "Uid") != _field(theirs, "Uid"):
            reason = f"cannot read PID {pid}: it belongs to another user (uid {_field(theirs, 'Uid')})"
        elif scope == "3":
            reason = f"cannot read PID {pid}: kernel.yama.ptrace_scope is 3, which nobody may pass until the next boot"
            retry = f"without stacks: {_own_command()} attach --no-stacks {pid}"
        elif scope != "0":
            reason = f"cannot read PID {pid}: kernel.yama.ptrace_scope is {scope}"
            retry += ', or "sudo sysctl kernel.yama.ptrace_scope=0" for all of this user\'s processes'
        else:
            reason = f"cannot read PID {pid}: this process lacks the capability SYS_PTRACE"
            retry = "in Docker add --cap-add SYS_PTRACE, or " + retry
        return Absent(kind=kind, about=subject, status="denied", reason=reason, how_to_get=retry)
    last = why.splitlines()[-1] if why else status
    return Absent(
        kind=kind,
        about=subject,
        status="timeout" if status == "timeout" else "absent",
        reason=f"py-spy on PID {pid}: {last}",
    )


def _own_command() -> str:
    """What starts this same doctor whatever PATH says, as root's may not hold it."""
    installed = Path(sysconfig.get_path("scripts"), "ddp-doctor")
    if installed.exists():
        return str(installed)
    folders = [
        each
        for each in dict.fromkeys(map(os.path.abspath, sys.path))
        if list(Path(each).glob("ddp_doctor*/__init__.py"))
    ]
    return f"env PYTHONPATH={shlex.quote(':'.join(folders))} {shlex.quote(sys.executable or 'python3')} -m ddp_doctor"


def _field(status: str, name: str) -> str:
    return next((line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")), "?")


def is_address(text: str) -> bool:
    """Whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def installed_py_spy() -> str:
    """The py-spy that was installed with the doctor, else the one on PATH."""
    ours = Path(sysconfig.get_path("scripts"), "py-spy")
    return str(ours) if ours.exists() else shutil.which("py-spy") or "py-spy"
