"""Which processes of a node are ranks, and which of them belong to one job, whatever started them."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_doctor.facts.job import Connection, Process, Role, is_servant

NETWORK_THREADS = re.compile(r"^(pt_tcpstore|gloo_tcp_loop|pt_gloo_runloop|pt_nccl_)")
LAUNCHERS = {"torchrun", "accelerate", "accelerate-launch", "deepspeed", "ds", "torchx", "fabric"}
LAUNCHER_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
                    "deepspeed.launcher.launch", "deepspeed.launcher.runner"}  # fmt: skip
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZE_NAMES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
ENDPOINT_OPTIONS = ("--rdzv-endpoint", "--rdzv_endpoint", "--master-port", "--master_port")

RANK_OPTION = re.compile(r"^--?(global[-_])?rank$")
PLACE_OPTION = re.compile(r"^--?((master|dist|store|init)[-_])?(port|addr|address|host|url|method)$")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one job on this node, each with its role, ordered by age."""

    members: tuple[Process, ...]
    roles: dict[int, Role]

    def of(self, role: Role) -> tuple[Process, ...]:
        """The members with that role."""
        return tuple(process for process in self.members if self.roles[process.pid] == role)


def number(text: str | None) -> int | None:
    """A rank or size as the launchers write it; None for anything else."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def rank_of(process: Process) -> int | None:
    """The rank its variables say: RANK where set, else the node's first local rank, else a scheduler's own number."""
    values = process.variables
    if "RANK" in values:
        return number(values["RANK"])
    if "LOCAL_RANK" in values:
        local, node = number(values["LOCAL_RANK"]), number(values.get("NODE_RANK") or values.get("GROUP_RANK") or "0")
        size = number(values.get("WORLD_SIZE"))
        if local is not None and (node == 0 or size is None):
            return local
    return next((number(values[name]) for name in RANK_NAMES if name in values), None)


def size_of(process: Process) -> int | None:
    """The world size its variables say."""
    values = process.variables
    return next((number(values[name]) for name in SIZE_NAMES if number(values.get(name))), None)


def endpoint_of(process: Process) -> tuple[str, str] | None:
    """MASTER_ADDR and MASTER_PORT, where the port is set."""
    port = process.variables.get("MASTER_PORT", "")
    return (process.variables.get("MASTER_ADDR", ""), port) if port else None


def script_of(process: Process) -> tuple[str, ...]:
    """What it runs: its arguments from the script on, without the interpreter and its options."""
    words = list(process.arguments)
    while words and (_base(words[0]).startswith("python") or words[0] in ("-u", "-O", "-B", "-I")):
        words.pop(0)
    return tuple(words)


def in_network(process: Process) -> bool:
    """Whether a thread of torch.distributed runs in it."""
    return any(NETWORK_THREADS.match(name) for name in process.threads)


def families(processes: Iterable[Process], connections: Iterable[Connection]) -> tuple[Family, ...]:
    """The jobs among these processes; a job has at least one rank."""
    everyone = {process.pid: process for process in processes}
    roles = _roles(everyone)
    members = [process for process in everyone.values() if roles[process.pid] != "other"]
    groups = _Groups(process.pid for process in members)
    _join_relatives(members, everyone, groups)
    _join_endpoints(members, groups)
    _join_connected(members, tuple(connections), roles, groups)
    _join_siblings(members, roles, groups)
    found = []
    for pids in groups.sets():
        mine = sorted((everyone[pid] for pid in pids), key=lambda process: -(process.age_s or 0.0))
        if any(roles[process.pid] in ("rank", "launcher") for process in mine):
            found.append(Family(members=tuple(mine), roles={process.pid: roles[process.pid] for process in mine}))
    found.sort(key=lambda family: min(process.pid for process in family.members))
    return tuple(found)


class _Groups:
    """Union-find over PIDs."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._parent = {pid: pid for pid in pids}

    def root(self, pid: int) -> int:
        while self._parent[pid] != pid:
            pid = self._parent[pid]
        return pid

    def join(self, one: int, other: int) -> None:
        if one in self._parent and other in self._parent:
            self._parent[self.root(one)] = self.root(other)

    def sets(self) -> list[list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for pid in self._parent:
            found[self.root(pid)].append(pid)
        return list(found.values())


def _roles(everyone: Mapping[int, Process]) -> dict[int, Role]:
    children: dict[int, list[Process]] = defaultdict(list)
    for process in everyone.values():
        children[process.parent].append(process)
    roles: dict[int, Role] = {pid: _role(process, everyone) for pid, process in everyone.items()}
    for pid, process in everyone.items():
        if roles[pid] == "rank" and _only_starts_ranks(process, children[pid], roles):
            roles[pid] = "parent"
    for pid, process in everyone.items():
        if roles[pid] != "rank" or process.gone:
            continue
        chain = (everyone[each] for each in process.ancestors or (process.parent,) if each in everyone)
        above = next((other for other in chain if roles[other.pid] == "rank"), None)
        if above is not None and rank_of(process) == rank_of(above) and not _starts_anew(process, above):
            # a helper that a rank started, or a wrapper around the rank itself
            wrapper = in_network(process) or (
                not in_network(above) and bool(above.tasks) and above.tasks[0].wchan == "do_wait"
            )
            roles[above.pid if wrapper else pid] = "other"
        elif process.torch is False and not in_network(process) and _is_shadow(process, everyone.values(), roles):
            roles[pid] = "other"
    return roles


def _is_shadow(process: Process, everyone: Iterable[Process], roles: Mapping[int, Role]) -> bool:
    """A process without torch that only inherited a rank's variables, such as a logger that outlived its parent."""
    return rank_of(process) is not None and any(
        other is not process
        and roles[other.pid] == "rank"
        and other.torch
        and rank_of(other) == rank_of(process)
        and endpoint_of(other) == endpoint_of(process)
        for other in everyone
    )


def _role(process: Process, everyone: Mapping[int, Process]) -> Role:
    role = _own_role(process, everyone)
    if role != "other" or not process.asked or process.gone or is_servant(process.arguments):
        return role
    # a shell or wrapper that the user named stands for the ranks, or their launcher, below it
    below = (other for other in everyone.values() if process.pid in other.ancestors)
    if any(_own_role(other, everyone) in ("rank", "launcher") for other in below):
        return "parent"
    return "other" if process.python is False else "rank"


def _own_role(process: Process, everyone: Mapping[int, Process]) -> Role:
    """What a process is, whether or not somebody named it."""
    if process.command == "pt_data_worker":
        return "data-worker"
    if is_servant(process.arguments):
        return "other"
    if _is_launcher(process):
        return "launcher"
    above = everyone.get(process.parent)
    if process.gone:
        return "rank" if above is not None and (_is_launcher(above) or _distributed(above)) else "other"
    if _distributed(process) or (process.torch is not False and _started_by_torch(process, everyone)):
        return "rank"
    if process.torch and any(
        other.parent == process.pid and other.torch and other.command != "pt_data_worker" for other in everyone.values()
    ):
        return "parent"
    return "other"


def _started_by_torch(process: Process, everyone: Mapping[int, Process]) -> bool:
    """Whether a process that has torch, or spawns such, forked or spawned this one; data workers are none."""
    above = everyone.get(process.parent)
    return (
        above is not None
        and above.torch is not False
        and "pt_data_worker" not in (above.command, process.command)
        and (process.torch is True or "--multiprocessing-fork" in process.arguments)
        and not process.gone
    )


def _distributed(process: Process) -> bool:
    values = process.variables
    ranked = any(name in values for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")) or (
        "MASTER_PORT" in values and process.torch is not False
    )
    numbered = process.torch is True and _numbered(script_of(process))[0] is not None
    return in_network(process) or ((ranked or numbered) and process.command != "pt_data_worker")


def _is_launcher(process: Process) -> bool:
    if process.command == "pt_elastic":
        return True
    words = process.arguments[:4]
    if any(_base(word) in LAUNCHERS for word in words[:2]):
        return True
    return any(first == "-m" and second in LAUNCHER_MODULES for first, second in itertools.pairwise(words))


def _only_starts_ranks(process: Process, children: Sequence[Process], roles: Mapping[int, Role]) -> bool:
    """A process without a rank of its own that started two or more: it spawned or forked them."""
    started = [child for child in children if roles[child.pid] == "rank" and not child.gone]
    if not started or in_network(process) or "RANK" in process.variables:
        return False
    spawned = any("--multiprocessing-fork" in child.arguments for child in started)
    forked = any(child.arguments == process.arguments for child in started) and not any(
        _starts_anew(child, process) for child in started
    )
    return spawned or forked


def _starts_anew(child: Process, parent: Process) -> bool:
    """Whether a process was started with rank variables that the one above it was not started with."""
    ours, theirs = child.set_at_start or {}, parent.set_at_start or {}
    return any(name in ours and ours.get(name) != theirs.get(name) for name in ("LOCAL_RANK", "RANK"))


def _join_relatives(members: Sequence[Process], everyone: Mapping[int, Process], groups: _Groups) -> None:
    for process in members:
        for above in process.ancestors or (process.parent,):
            if above in everyone:
                groups.join(process.pid, above)
                break


def _join_endpoints(members: Sequence[Process], groups: _Groups) -> None:
    first: dict[object, int] = {}
    for process in members:
        keys: list[object] = []
        where = endpoint_of(process)
        if where:
            loopback = where[0] in ("", "localhost") or where[0].startswith("127.")
            keys.append((*where, process.network if loopback else None))
        words = process.arguments
        for option, value in zip(words, [*words[1:], ""], strict=False):
            name, _, inline = option.partition("=")
            if name in ENDPOINT_OPTIONS:
                keys.append((name.replace("_", "-"), inline or value, process.network))
        for key in keys:
            groups.join(process.pid, first.setdefault(key, process.pid))


def _join_connected(
    members: Sequence[Process], connections: Sequence[Connection], roles: Mapping[int, Role], groups: _Groups
) -> None:
    known = {process.pid for process in members}
    listening: dict[tuple[int | None, int], int] = {}
    ends: dict[tuple[str, int, str, int], int] = {}
    for each in connections:
        pid = each.subject.pid
        # data workers inherit their parent's sockets and would be found in its place
        if pid not in known or roles[pid] == "data-worker":
            continue
        if each.state == "LISTEN":
            listening[each.network, each.local_port] = pid
        else:
            ends[each.local, each.local_port, each.peer, each.peer_port] = pid
    for (local, port, peer, peer_port), pid in ends.items():
        other = ends.get((peer, peer_port, local, port))
        if other is not None:
            groups.join(pid, other)


def _join_siblings(members: Sequence[Process], roles: Mapping[int, Role], groups: _Groups) -> None:
    """Ranks of one script that one process started, where together they make one job and apart they do not."""
    _join_numbered(members, roles, groups)
    rivals: dict[object, list[int]] = defaultdict(list)
    by_pid = {process.pid: process for process in members}
    for process in members:
        if roles[process.pid] != "rank" or not process.arguments:
            continue
        for above in process.ancestors[:2] or (process.parent,):
            if above > 1:
                rivals[above, script_of(process)].append(process.pid)
    for pids in rivals.values():
        for one in pids[1:]:
            base, more = groups.root(pids[0]), groups.root(one)
            if base == more:
                continue
            sets = {groups.root(members[0]): members for members in groups.sets()}
            left = [by_pid[pid] for pid in sets[groups.root(base)] if roles[pid] == "rank"]
            right = [by_pid[pid] for pid in sets[groups.root(more)] if roles[pid] == "rank"]
            if _are_parts(left, right):
                groups.join(pids[0], one)


def _join_numbered(members: Sequence[Process], roles: Mapping[int, Role], groups: _Groups) -> None:
    """Ranks that their arguments number, where nothing else in the arguments but the store's place tells them apart."""
    alike: dict[object, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for process in members:
        if roles[process.pid] == "rank" and rank_of(process) is None and process.arguments:
            own, rest = _numbered(script_of(process))
            if own is not None:
                for above in process.ancestors[:1] or (process.parent,):
                    if above > 1:
                        alike[above, process.cwd, rest][own].append(process.pid)
    for by_rank in alike.values():
        if len(by_rank) > 1 and all(len(pids) == 1 for pids in by_rank.values()):
            pids = [pid for pids in by_rank.values() for pid in pids]
            for other in pids[1:]:
                groups.join(pids[0], other)


def _numbered(words: Sequence[str]) -> tuple[int | None, tuple[str, ...]]:
    """The rank that `--rank 1` or `--rank=1` gives, and the other arguments without the store's port and address."""
    own, rest, left = None, [], list(words)
    while left:
        name, given, value = left.pop(0).partition("=")
        if RANK_OPTION.match(name) or PLACE_OPTION.match(name):
            if not given and left:
                value = left.pop(0)
            own = number(value) if RANK_OPTION.match(name) else own
        else:
            rest.append(f"{name}{given}{value}")
    return own, tuple(rest)


def _are_parts(left: Sequence[Process], right: Sequence[Process]) -> bool:
    if all(process.now is None and process.set_at_start is None for process in (*left, *right)):
        # without the right to see their variables, one script and one parent have to do
        return True
    ours, theirs = {rank_of(process) for process in left}, {rank_of(process) for process in right}
    if None in ours or None in theirs or ours & theirs:
        return False
    sizes = {size_of(process) for process in (*left, *right)} - {None}
    largest = max((size for size in sizes if size), default=0)
    return len(ours) < largest and len(theirs) < largest and len(ours) + len(theirs) <= largest


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]
