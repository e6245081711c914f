"""Processes, their sockets, stacks and the store's keys to the ranks of each job: where each stands, for whom it waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ddp_doctor.facts.job import (
    CallSite,
    Connection,
    Divergence,
    Job,
    JobRank,
    Place,
    Process,
    RankStateName,
    Role,
    Sighting,
    StoreKeys,
    Task,
    place_of,
)
from ddp_doctor.facts.nccl_live import NcclCall, RasCommunicator
from ddp_doctor.facts.process import Stack
from ddp_doctor.interpret import Interpreter
from ddp_doctor.interpret.across import across_hosts
from ddp_doctor.interpret.divergence import divergence
from ddp_doctor.interpret.family import Family, families, number, rank_of, size_of
from ddp_doctor.interpret.nccl_call import stage_of_call, stuck, waits
from ddp_doctor.interpret.stage import (
    Activity,
    activity,
    from_ras,
    from_sockets,
    from_threads,
    narrowed,
    settle,
    user_frames,
)
from ddp_doctor.interpret.waits import culprits, waits_of
from ddp_doctor.model import Fact, Facts, Stage, Subject

BUSY = 0.2
"""The share of a CPU from which a process counts as working; polling waits stay far below it."""
MOVING = 0.02
"""The share of a CPU from which Gloo's threads count as moving data, and data workers as loading it; in a hang they sleep."""
STARTING_SECONDS = 45.0
BIRTHS = ("gloo_tcp_loop", "pt_tcpstore_uv", "pt_nccl_watchdg")


def interpret(facts: Facts) -> list[Fact]:
    """A Job per family of processes that has to do with torch.distributed, and a JobRank for each of its ranks."""
    by_pid: dict[Place, list[Connection]] = defaultdict(list)
    for each in facts[Connection]:
        by_pid[place_of(each.subject)].append(each)
    stacks: dict[tuple[str, int | None, int | None], list[Stack]] = defaultdict(list)
    for stack in facts[Stack]:
        stacks[stack.subject.process].append(stack)
    calls = {place_of(call.subject): call for call in facts[NcclCall]}
    told = facts[RasCommunicator]
    here: list[Family] = []
    for host in dict.fromkeys(process.subject.host for process in facts[Process]):
        mine = facts.on(host)
        here += families(mine[Process], mine[Connection])
    found: list[Fact] = []
    for group in across_hosts(here, facts[Connection]):
        drafts = [
            _Draft(
                process,
                family.roles[process.pid],
                stacks[process.subject.process],
                by_pid[place_of(process.subject)],
                calls.get(place_of(process.subject)),
                told,
            )
            for family in group
            for process in family.members
        ]
        if not any(draft.concerned for draft in drafts) and not any(draft.process.asked for draft in drafts):
            continue
        found += _job(len([fact for fact in found if isinstance(fact, Job)]), drafts, by_pid, facts)
    return found


class _Draft:
    """One process of a family with what its threads do."""

    def __init__(
        self,
        process: Process,
        role: Role,
        stacks: Sequence[Stack],
        connections: Sequence[Connection],
        nccl: NcclCall | None = None,
        ras: Sequence[RasCommunicator] = (),
    ) -> None:
        self.process = process
        self.nccl = nccl
        self.ras = ras if process.nccl else ()
        self.role = role
        self.stacks = list(stacks)
        self.connections = connections
        self.seen = [(stack, activity(stack)) for stack in stacks]
        self.chosen = self._chosen()
        arguments = self.chosen[1].arguments if self.chosen else {}
        values = process.variables
        self.rank = _first(arguments.get("rank"), arguments.get("group_rank"))
        if self.chosen is None or self.chosen[1].call != "init_process_group" or self.rank is None:
            index = next((a.get("i") for a in self._all_arguments() if a.get("i")), None)
            told = rank_of(process)
            self.rank = told if told is not None else self.rank if self._in_init() else number(index)
        self.size = _first(arguments.get("world_size"), arguments.get("group_size")) if self._in_init() else None
        self.size = self.size if self.size is not None else size_of(process)
        self.init_method = _given(arguments.get("init_method"))
        self.address = _given(arguments.get("hostname")) or values.get("MASTER_ADDR", "")
        port = number(arguments.get("port")) or number(values.get("MASTER_PORT"))
        self.port = port if port is not None else _port_of(self.init_method)
        if not self.address and "://" in self.init_method:
            self.address = self.init_method.split("://", 1)[1].rpartition(":")[0]

    def _all_arguments(self) -> list[dict[str, str]]:
        return [frame.arguments for stack in self.stacks for frame in stack.frames if frame.arguments]

    def _in_init(self) -> bool:
        return self.chosen is not None and self.chosen[1].call == "init_process_group"

    @property
    def concerned(self) -> bool:
        """Whether anything shows that it has to do with torch.distributed."""
        threads = any(
            name.startswith(("pt_tcpstore", "gloo_", "pt_nccl", "pt_elastic")) for name in self.process.threads
        )
        variables = {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & self.process.variables.keys()
        return threads or bool(variables) or any(seen.distributed for _, seen in self.seen)

    def _chosen(self) -> tuple[Stack, Activity] | None:
        """The thread that acts as the rank: one inside torch.distributed, else the main thread."""
        if not self.seen:
            return None
        main = next((pair for pair in self.seen if pair[0].subject.thread == self.process.pid), self.seen[0])
        order = [main, *(pair for pair in self.seen if pair is not main)]
        for stack, seen in order:
            if seen.distributed and seen.doing != "watching-workers":
                return stack, seen
        return next((pair for pair in order if pair[1].doing in ("import-lock", "data")), main)

    def task(self, thread: int | None) -> Task | None:
        """The kernel's view of a thread, the main one if it is not known."""
        tasks = self.process.tasks
        return next((task for task in tasks if task.id == thread), tasks[0] if tasks else None)


def _job(
    place: int, drafts: Sequence[_Draft], by_pid: Mapping[Place, Sequence[Connection]], facts: Facts
) -> list[Fact]:
    hosts = tuple(dict.fromkeys(draft.process.subject.host for draft in drafts))
    roles = {place_of(draft.process.subject): _role(draft, drafts) for draft in drafts}
    rank_drafts = [draft for draft in drafts if roles[place_of(draft.process.subject)] == "rank"]
    sizes = Counter(draft.size for draft in rank_drafts if draft.size)
    size = sizes.most_common(1)[0][0] if sizes else None
    _number_by_position(rank_drafts, size)
    sightings: list[Fact] = []
    ranks: list[JobRank] = []
    for draft in drafts:
        role = roles[place_of(draft.process.subject)]
        if role in ("rank", "launcher", "parent", "data-worker"):
            row, seen = _rank(place, draft, role)
            ranks.append(row)
            sightings += seen
    numbered = [row for row in ranks if row.role == "rank"]
    present = {row.rank for row in numbered if row.rank is not None}
    unknown = [row for row in numbered if row.rank is None and row.state != "exited"]
    missing = tuple(each for each in range(size or 0) if each not in present) if present and size else ()
    if len(unknown) >= len(missing):
        missing = ()
    store = next((each for each in facts[StoreKeys] if each.port in {row.master_port for row in ranks}), None)
    waiting = [
        msgspec.structs.replace(row, waits_for=waits_of(row, numbered, missing, by_pid, store))
        if row in numbered
        else row
        for row in ranks
    ]
    blamed = culprits([row for row in waiting if row.role == "rank"])
    by_role = [(draft, roles[place_of(draft.process.subject)]) for draft in drafts]
    starters = [draft for draft, role in by_role if role == "launcher"]
    starters += [draft for draft, role in by_role if role == "parent" and draft.process.torch]
    # above a script that starts ranks there may be one that only started the script
    parents = {draft.process.parent for draft in rank_drafts}
    launcher = next(iter(sorted(starters, key=lambda draft: draft.process.pid not in parents)), None)
    job = Job(
        subject=Subject(host=hosts[0]),
        source="/proc",
        number=place,
        hosts=hosts,
        launcher=_launcher_name(launcher, rank_drafts) if launcher else "",
        launcher_pid=launcher.process.pid if launcher else None,
        world_size=size,
        ranks=tuple(sorted(each for each in present if each is not None)),
        missing=missing,
        complete_here=_complete_here(rank_drafts, missing, size),
        hung=_hung(waiting, missing),
        culprits=tuple(place_of(row.subject) for row in blamed),
    )
    parted = divergence([row for row in waiting if row.role == "rank"], facts[CallSite])
    return [job, *waiting, *sightings, *([parted] if parted else [])]


def _role(draft: _Draft, drafts: Sequence[_Draft]) -> Role:
    """What stacks add to the role: a process that waits for those it spawned is no rank, nor one without a rank."""
    if draft.role in ("rank", "parent") and draft.chosen and draft.chosen[1].doing == "spawning":
        return "parent"
    if draft.role == "parent" and draft.chosen and draft.chosen[1].distributed and draft.chosen[1].call:
        return "rank"
    if (
        draft.role == "rank"
        and draft.process.gone
        and any(
            other.role == "rank" and not other.process.gone and other.rank == draft.rank is not None for other in drafts
        )
    ):
        return "other"
    return draft.role


def _number_by_position(drafts: Sequence[_Draft], size: int | None) -> None:
    """The one process whose rank nothing tells has the one number nobody else has."""
    unknown = [draft for draft in drafts if draft.rank is None]
    if size is None or len(unknown) != 1:
        return
    left = set(range(size)) - {draft.rank for draft in drafts}
    if len(left) == 1:
        unknown[0].rank = left.pop()
        unknown[0].size = size


def _rank(place: int, draft: _Draft, role: Role) -> tuple[JobRank, list[Fact]]:
    process = draft.process
    subject = msgspec.structs.replace(process.subject, rank=draft.rank if role == "rank" else None)
    stack, seen = draft.chosen if draft.chosen else (None, None)
    sightings = [
        *from_threads(process, subject, in_init=bool(seen and seen.call == "init_process_group")),
        *from_sockets(process, draft.connections, draft.port, subject),
        *from_ras(process, draft.rank, draft.ras, subject),
    ]
    task = draft.task(stack.subject.thread if stack else None)
    if seen is not None and stack is not None:
        seen = narrowed(seen, task.wchan if task else "", process, draft.connections, draft.port)
        on_thread = msgspec.structs.replace(subject, thread=stack.subject.thread)
        sightings.insert(
            0,
            Sighting(
                subject=on_thread,
                source=stack.source,
                at_least=seen.at_least,
                at_most=seen.at_most,
                because=stack.text(),
            ),
        )
    elif not process.gone:
        seen = _without_stack(process, draft, task)
    inside = _in_nccl(draft.nccl, seen)
    if inside is not None and draft.nccl is not None:
        # what it stands in now says more than what RAS last heard of its communicator
        sightings = [each for each in sightings if "RAS" not in each.source]
        seen = inside
        sightings.append(
            Sighting(
                subject=subject, source=draft.nccl.source, at_least=seen.at_least, at_most=seen.at_most,
                because=draft.nccl.text(),
            )
        )  # fmt: skip
    elif seen is not None and seen.doing in ("user-code", "importing", "data", "import-lock") and len(sightings) < 2:
        # nothing of torch.distributed is in it yet
        sightings.append(
            Sighting(
                subject=subject, source=process.source, at_least=Stage.PYTHON, at_most=Stage.PYTHON,
                because="no thread and no socket of torch.distributed",
            )
        )  # fmt: skip
    low, high, conflict = settle(sightings) if sightings else (Stage.PYTHON, Stage.TRAINING, "")
    low = max(low, Stage.PYTHON)
    frames = user_frames(stack.frames) if stack else []
    since = _since(process, task, seen)
    row = JobRank(
        subject=subject,
        source=(stack.source if stack else process.source)
        + (f" ({process.inner_pid} inside its container)" if process.inner_pid is not None else ""),
        job=place,
        rank=draft.rank if role == "rank" else None,
        world_size=draft.size,
        role=role,
        stage=_usual(low, high, seen),
        at_most=high,
        conflict=conflict,
        state=_state(process, stack, seen),
        doing=seen.doing if seen else "",
        call=seen.call if seen else "",
        operation=seen.operation if seen else "",
        where=_place(frames[0].file, frames[0].line, frames[0].function) if frames else "",
        file=frames[0].file if frames else "",
        line=frames[0].line if frames else 0,
        user_frames=tuple(_place(frame.file, frame.line, frame.function) for frame in frames[:8]),
        places=tuple(f"{frame.file}:{frame.line}" for frame in frames[:8]),
        functions=tuple(frame.function for frame in stack.frames[:40]) if stack else (),
        group=seen.group or (seen.arguments.get("group_name", "") if seen.call == "init_process_group" else "")
        if seen
        else "",
        group_ranks=seen.group_ranks if seen else "",
        thread=stack.subject.thread if stack else None,
        thread_name=stack.thread_name if stack else "",
        master_address=draft.address,
        master_port=draft.port,
        init_method=draft.init_method,
        backend=_given(seen.arguments.get("backend")) if seen else "",
        since_s=since,
        cpu=stack.process_cpu if stack else process.cpu,
        moved=stack.moved if stack else None,
        has_stack=stack is not None,
        command=" ".join(process.arguments) or process.command,
    )
    return row, list(sightings)


def _in_nccl(call: NcclCall | None, seen: Activity | None) -> Activity | None:
    """What a rank does inside libnccl, None where it is outside or nothing tells how far it is."""
    stage = stage_of_call(call) if call is not None else None
    if call is None or stage is None:
        return None
    init = seen is not None and seen.call == "init_process_group"
    return Activity(
        doing="communicator" if waits(call) else "driver" if stuck(call) else "nccl",
        call=f"{seen.call} > {call.entry}" if seen is not None and seen.call and seen.distributed else call.entry,
        operation=seen.operation if seen is not None and not init else "",
        at_least=stage,
        at_most=stage,
        group=seen.group if seen is not None else "",
        arguments=seen.arguments if seen is not None else {},
    )


def _without_stack(process: Process, draft: _Draft, task: Task | None) -> Activity | None:
    """What thread names, the wait channel and sockets alone tell of a process that may not be read."""
    if draft.role == "launcher":
        return None
    names = process.threads
    wchan = task.wchan if task else ""
    if any(name == "pt_gloo_runloop" for name in names):
        return None
    if "gloo_tcp_loop" in names:
        base = Activity(
            doing="store-key", call="init_process_group", at_least=Stage.STORE_WAIT, at_most=Stage.GLOO_MESH
        )
        return narrowed(base, wchan, process, draft.connections, draft.port)
    to_store = [each for each in draft.connections if draft.port is not None and each.peer_port == draft.port]
    hosts = any(name.startswith("pt_tcpstore") for name in names)
    if hosts and not process.sockets_read:
        return Activity(
            doing="waiting-for-clients",
            call="init_process_group",
            at_least=Stage.STORE_CONNECT,
            at_most=Stage.STORE_WAIT,
        )
    if hosts or any(each.state in ("SYN_SENT", "ESTABLISHED") for each in to_store):
        base = Activity(
            doing="refused", call="init_process_group", at_least=Stage.STORE_CONNECT, at_most=Stage.STORE_WAIT
        )
        return narrowed(base, wchan, process, draft.connections, draft.port)
    return None


def _usual(low: Stage, high: Stage, seen: Activity | None) -> Stage:
    """The stage that the report shows: the earliest that fits, but a collective after init counts as one."""
    if seen is not None and seen.doing == "collective" and low <= Stage.FIRST_COLLECTIVE <= high:
        return Stage.FIRST_COLLECTIVE
    return low


def _state(process: Process, stack: Stack | None, seen: Activity | None) -> RankStateName:
    states = [task.state for task in process.tasks] or [process.state]
    if process.gone:
        return "exited"
    if process.state in ("T", "t"):
        return "stopped"
    if process.state == "D" or states[0] == "D":
        return "blocked"
    cpu = stack.process_cpu if stack else None
    busy = (cpu or 0.0) >= BUSY or bool(stack and stack.moved)
    if seen is not None and seen.distributed and not (seen.operation == "backward" and (cpu or 0.0) >= BUSY):
        if stack is not None and (stack.gloo_cpu or 0.0) >= MOVING and seen.call != "init_process_group":
            return "running"
        # polls and spins count as waiting, unless the thread went on to something else
        return "running" if stack is not None and stack.moved and (cpu or 0.0) >= BUSY else "waiting"
    if busy or process.state == "R":
        return "running"
    return "waiting"


def _since(process: Process, task: Task | None, seen: Activity | None) -> float | None:
    """For how long: in init since its first thread of torch.distributed; before init since its start."""
    if seen is None or seen.doing in ("user-code", "importing", "import-lock", "refused", "no-answer", "handshake"):
        return process.age_s if seen is None or not any(t.name in BIRTHS for t in process.tasks) else None
    if seen.call != "init_process_group":
        return None
    births = [t.age_s for t in process.tasks if t.name in BIRTHS and t.age_s is not None]
    if task is not None and task.id != process.pid and task.age_s is not None:
        births.append(task.age_s)
    return min(births) if births else process.age_s


def _hung(rows: Sequence[JobRank], missing: Sequence[int]) -> bool | None:
    """False where somebody makes progress or nobody waits for another; None where that cannot be told."""
    alive = [row for row in rows if row.role == "rank"]
    if not alive or missing or any(not row.has_stack for row in alive):
        return None
    if any(row.state in ("stopped", "blocked", "exited") for row in alive):
        return None
    if all(row.beyond_init for row in alive):
        if any(row.state == "running" for row in alive) or not any(row.waits_for for row in alive):
            together = {(row.doing, row.operation) for row in alive}
            if any(row.state == "running" for row in alive) or together == {("user-code", "")}:
                return False
            loading = any(
                row.role == "data-worker" and (row.moved or (row.cpu or 0.0) >= MOVING or row.state == "running")
                for row in rows
            )
            if loading and together <= {("user-code", ""), ("data", "")}:
                return False
        return None
    if any(row.conflict for row in alive):
        return None
    late = [row for row in alive if row.stage <= Stage.PYTHON]
    starting = late and all(
        row.state == "running" and row.doing == "importing" and (row.since_s or 0.0) < STARTING_SECONDS for row in late
    )
    return False if starting or len(late) == len(alive) else None


def _complete_here(drafts: Sequence[_Draft], missing: Sequence[int], size: int | None) -> bool:
    """Whether all ranks of the job belong on this node."""
    if not missing:
        return True
    for draft in drafts:
        values = draft.process.variables
        local = number(values.get("LOCAL_WORLD_SIZE")) or number(values.get("SLURM_NTASKS_PER_NODE"))
        if local is not None and size is not None and local >= size:
            return True
        if draft.init_method.startswith("file://"):
            return True
    addresses = {draft.address for draft in drafts if draft.address}
    if len({draft.process.subject.host for draft in drafts}) > 1:
        return False
    return bool(addresses) and all(
        each == "localhost" or each.startswith("127.") or each == "::1" for each in addresses
    )


def _launcher_name(starter: _Draft, ranks: Sequence[_Draft]) -> str:
    """What started the ranks, as a person knows it; empty for a script that started them in a way of its own."""
    words = starter.process.arguments
    if starter.role == "launcher":
        for word in words[:4]:
            base = word.rsplit("/", 1)[-1]
            if base in ("accelerate", "deepspeed") or base.startswith(("accelerate.", "deepspeed.")):
                return base.partition(".")[0]
        return "torchrun"
    files = {frame.file for draft in (starter, *ranks) for stack in draft.stacks for frame in stack.frames}
    if any(file.endswith("torch/multiprocessing/spawn.py") for file in files):
        return "torch.multiprocessing"
    own = {frame.file for draft in ranks for stack in draft.stacks for frame in stack.frames}
    spawned = any("--multiprocessing-fork" in draft.process.arguments for draft in ranks)
    if spawned or any(file.endswith("multiprocessing/process.py") for file in own):
        return "multiprocessing"
    return "os.fork" if own and any(draft.process.arguments == words for draft in ranks) else ""


def _place(file: str, line: int, function: str) -> str:
    return f"{file.rsplit('/', 1)[-1]}:{line} {function}"


def _first(*texts: str | None) -> int | None:
    return next((number(text) for text in texts if number(text) is not None), None)


def _given(text: str | None) -> str:
    return "" if text in (None, "None") else text or ""


def _port_of(url: str) -> int | None:
    return number(url.rpartition(":")[2].split("?")[0]) if url.startswith("tcp://") else None


INTERPRETER = Interpreter(
    reads=(Process, Connection, Stack, StoreKeys, CallSite, NcclCall, RasCommunicator),
    gives=(Job, JobRank, Sighting, Divergence),
    interpret=interpret,
)
