"""The processes of a running job: what each is, where it stands, whom it is connected to and for whom it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from ddp_doctor.model import Evidence, Fact, Facts, Stage, Subject, Wait

Role = Literal["rank", "launcher", "parent", "data-worker", "other"]
DOINGS = (
    "user-code", "importing", "refused", "no-answer", "handshake", "waiting-for-clients", "store-key", "gloo-mesh",
    "store-barrier", "file-store", "communicator", "driver", "nccl", "new-group", "collective", "ddp", "data", "import-lock",
    "spawning", "waiting-for-nodes", "watching-workers",
)  # fmt: skip
"""What a process does, in the order in which a job comes to it."""
OWN_CODE = ("user-code", "importing", "data", "")
"""What a rank does that is not in torch.distributed."""
SERVANTS = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker", "multiprocessing.forkserver",
            "compile_worker", "multiprocessing.managers")  # fmt: skip
"""In the arguments of processes that Python and torch start for themselves."""
TICKS = 100
"""Clock ticks in a second of a process's start time; Linux shows no other number."""
Item = TypeVar("Item")
RankStateName = Literal["running", "waiting", "stopped", "blocked", "exited"]


Place = tuple[str, int | None]
"""Where a process is: its host, and its PID there."""


def is_servant(arguments: Iterable[str]) -> bool:
    """Whether these arguments are those of a process that Python or torch started for itself."""
    return any(servant in word for word in arguments for servant in SERVANTS)


def place_of(subject: Subject) -> Place:
    """The host and PID of a subject."""
    return (subject.host, subject.pid)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thread: the kernel's name for it, its state letter, the function it sleeps in, and its age in seconds."""

    id: int
    name: str
    state: str = ""
    wchan: str = ""
    age_s: float | None = None


class Process(Fact, frozen=True, kw_only=True):
    """One process as /proc shows it. `inner_pid` is its PID inside its own PID namespace, where that differs.

    `set_at_start` holds the launch variables it was started with, `now` those in its memory; None where unreadable.
    `network` is the inode of its network namespace. `cpu` is the share of one CPU it used while it was looked at.
    """

    parent: int
    command: str
    arguments: tuple[str, ...] = ()
    state: str = ""
    user: int | None = None
    cwd: str = ""
    group: int | None = None
    session: int | None = None
    network: int | None = None
    inner_pid: int | None = None
    age_s: float | None = None
    tasks: tuple[Task, ...] = ()
    cpu: float | None = None
    set_at_start: dict[str, str] | None = None
    now: dict[str, str] | None = None
    exit_code: int | None = None
    """For a zombie: its exit code, negative for a signal; None where the kernel does not tell this user."""
    system_call: str = ""
    """The blocking call its main thread is in, such as `flock`, where it works on a file."""
    descriptor: int | None = None
    """The descriptor that call works on; 0 is standard input."""
    file: str = ""
    """The file behind that descriptor."""
    lock_holder: int | None = None
    """The PID that holds the file lock it waits for."""
    ancestors: tuple[int, ...] = ()
    """PIDs above it, the parent first."""
    torch: bool | None = None
    """Whether torch is loaded into it; None where that cannot be seen."""
    python: bool | None = None
    """Whether it runs Python at all; None where that cannot be seen."""
    nccl: str = ""
    """The libnccl that is loaded into it, as a path of its own."""
    cuda: bool | None = None
    """Whether the CUDA driver's library is loaded into it; None where that cannot be seen."""
    devices: tuple[str, ...] = ()
    """The GPUs it has open, such as `/dev/nvidia0`."""
    output: dict[str, str] = msgspec.field(default_factory=dict)
    """The regular files behind its descriptors 1 and 2."""
    ipv6: bool | None = None
    """Whether its network has an IPv6 address besides loopback's; None where that cannot be seen."""
    asked: bool = False
    """Whether the user named it."""
    image: int = 0
    """Where its stack begins: another number after exec; 0 where this user may not see it."""
    sockets_read: bool = True
    """Whether its open sockets could be seen."""

    @property
    def pid(self) -> int:
        """The PID as seen from here."""
        return self.subject.pid or 0

    @property
    def variables(self) -> dict[str, str]:
        """The launch variables in effect: those in memory where they could be read, else those it was started with."""
        return self.now if self.now is not None else self.set_at_start or {}

    @property
    def threads(self) -> frozenset[str]:
        """The names of its threads."""
        return frozenset(task.name for task in self.tasks)

    @property
    def gone(self) -> bool:
        """Whether it has ended and waits to be reaped."""
        return self.state in ("Z", "X")

    @property
    def words(self) -> str:
        """The process as a person would name it."""
        shown = " ".join(self.arguments) or self.command
        inner = f", {self.inner_pid} inside its container" if self.inner_pid not in (None, self.pid) else ""
        return f"PID {self.pid} ({shown if len(shown) <= 60 else shown[:57] + '...'}{inner})"

    def text(self) -> str:
        wchan = f", in {self.tasks[0].wchan}" if self.tasks and self.tasks[0].wchan not in ("", "0") else ""
        return f"{' '.join(self.arguments) or self.command}: state {self.state}{wchan}"


class Child(Fact, frozen=True, kw_only=True):
    """A program without torch that the process `subject` started; `waited_for` where that one waits for it by its PID."""

    pid: int
    command: str
    arguments: tuple[str, ...] = ()
    state: str = ""
    wchan: str = ""
    age_s: float | None = None
    waited_for: bool = False

    @property
    def words(self) -> str:
        """The process as a person would name it."""
        shown = " ".join(" ".join(self.arguments).split()) or self.command
        return f"PID {self.pid} `{shown if len(shown) <= 60 else shown[:57] + '...'}`"

    @property
    def servant(self) -> bool:
        """Whether it is one of those that Python and torch start for themselves."""
        return is_servant(self.arguments)

    def text(self) -> str:
        does = {"R": "runs", "D": "waits uninterruptibly", "T": "is stopped", "t": "is stopped by a debugger"}
        wchan = f" in {self.wchan}" if self.wchan and self.state != "R" else ""
        since = f", started {self.age_s:.0f} s ago" if self.age_s is not None else ""
        return f"{self.words} {does.get(self.state, 'sleeps')}{wchan}{since}"


class Connection(Fact, frozen=True, kw_only=True):
    """One TCP socket of a process. Queues are bytes: `unsent` not yet acknowledged, `unread` not yet read."""

    local: str
    local_port: int
    peer: str
    peer_port: int
    state: str
    unsent: int = 0
    unread: int = 0
    network: int | None = None

    def text(self) -> str:
        if self.state == "LISTEN":
            return f"listens on {self.local}:{self.local_port}"
        queues = "".join(f", {n} bytes {what}" for n, what in ((self.unsent, "unsent"), (self.unread, "unread")) if n)
        return f"{self.local}:{self.local_port} -> {self.peer}:{self.peer_port} {self.state}{queues}"


class Listener(Fact, frozen=True, kw_only=True):
    """Who listens on a port that a rank of the job uses as MASTER_PORT; `owner` is None where nobody visible does."""

    port: int
    address: str
    owner: int | None = None
    command: str = ""
    arguments: tuple[str, ...] = ()
    state: str = ""
    threads: tuple[str, ...] = ()
    network: int | None = None
    age_s: float | None = None
    parent: int | None = None

    @property
    def words(self) -> str:
        """The process as a person would name it."""
        if self.owner is None:
            return "a process that is not visible here"
        shown = " ".join(" ".join(self.arguments).split()) or self.command
        return f"PID {self.owner} ({shown if len(shown) <= 60 else shown[:57] + '...'})"

    def text(self) -> str:
        return f"{self.words} listens on {self.address}:{self.port}"


class StoreKeys(Fact, frozen=True, kw_only=True):
    """What a job's own TCPStore says to a read-only query: how many clients joined and which keys of those asked exist.

    `answer` is `store` where it spoke the protocol, else how it failed: silent, closes, http, other, refused, dropped.
    """

    address: str
    port: int
    answer: str
    joined: int | None = None
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    got: str = ""
    network: int | None = None

    def text(self) -> str:
        if self.answer != "store":
            return f"{self.address}:{self.port} is no TCPStore: {self.answer} {self.got}".rstrip()
        return f"the store says: {self.joined} joined, keys {', '.join(self.present) or 'none'}"


class Resolved(Fact, frozen=True, kw_only=True):
    """What MASTER_ADDR is where a rank lives: its addresses, and whether one of them is that host's own."""

    name: str
    addresses: tuple[str, ...] = ()
    error: str = ""
    local: bool | None = None
    network: int | None = None

    def text(self) -> str:
        return f"{self.name} -> {', '.join(self.addresses) or self.error}"


class CallSite(Fact, frozen=True, kw_only=True):
    """Lines of a script that stand around a call: conditions it is under, and loops it is in, as written."""

    file: str
    line: int
    conditions: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    code: str = ""
    after_loops: tuple[int, ...] = ()
    """First lines of loops of the same function that end above this line."""
    paired: bool = False
    """Whether another line under a condition on the rank makes the same call, as where one rank works first."""
    loop_lines: tuple[int, ...] = ()
    """First lines of the loops around it."""

    def text(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}: {self.code}"


class Sighting(Fact, frozen=True, kw_only=True):
    """One piece of evidence about how far a rank has come: its stage is at least and at most this."""

    at_least: Stage
    at_most: Stage
    because: str

    def text(self) -> str:
        reach = self.at_least.label if self.at_least is self.at_most else f"{self.at_least.label}..{self.at_most.label}"
        return f"{reach}: {self.because}"


class JobRank(Fact, frozen=True, kw_only=True):
    """One rank of a job, or a process that ought to be one: where it stands and for whom it waits.

    `job` tells jobs of one node apart. `rank` and `world_size` are None where nothing tells them. `doing` is what the
    evidence says it does, one of DOINGS, or, without evidence, an empty text; `communicator` waits for others inside
    libnccl, `driver` stands there in a call that does not return, `nccl` works there. `call` is the torch.distributed function,
    `operation` that function as its collective's name. `user_frames` are the script's own frames, innermost first.
    """

    job: int
    rank: int | None = None
    world_size: int | None = None
    role: Role = "rank"
    stage: Stage = Stage.PYTHON
    at_most: Stage = Stage.TRAINING
    conflict: str = ""
    state: RankStateName = "running"
    doing: str = ""
    call: str = ""
    operation: str = ""
    where: str = ""
    file: str = ""
    line: int = 0
    user_frames: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Path and line of the same frames, `/home/me/train.py:88`."""
    functions: tuple[str, ...] = ()
    """Names of all its frames, innermost first."""
    group: str = ""
    """The process group's name where the call is about one other than the default group."""
    group_ranks: str = ""
    thread: int | None = None
    thread_name: str = ""
    master_address: str = ""
    master_port: int | None = None
    init_method: str = ""
    backend: str = ""
    since_s: float | None = None
    cpu: float | None = None
    moved: bool | None = None
    """Whether its stack changed between two looks; None where it was looked at once."""
    waits_for: tuple[Wait, ...] = ()
    has_stack: bool = False
    command: str = ""

    @property
    def name(self) -> str:
        """`rank 3` where that is known, else `PID 4121`."""
        return f"rank {self.rank}" if self.rank is not None else f"PID {self.subject.pid}"

    @property
    def beyond_init(self) -> bool:
        """Whether `init_process_group` has certainly returned."""
        return self.stage >= Stage.INITIALIZED

    def text(self) -> str:
        what = f"{self.call} <- {self.where}" if self.call and self.where else self.where or self.call or self.doing
        waits = sorted({f"rank {wait.rank}" for wait in self.waits_for if wait.rank is not None})
        return f"{self.stage.label}, {self.state}: {what}" + (f", waits for {', '.join(waits[:6])}" if waits else "")

    def evidence(self, value: str | None = None) -> Evidence:
        """This rank as a quotation."""
        return super().evidence(value)


class Job(Fact, frozen=True, kw_only=True):
    """One job. `missing` are ranks that should be here and are not; `hung` None where it cannot be told.

    `hosts` are those that it was seen on; `complete_here` says that all its ranks belong on the one there is.
    `culprits` are the processes of ranks that others wait for and that wait for nobody.
    """

    number: int
    hosts: tuple[str, ...] = ()
    launcher: str = ""
    launcher_pid: int | None = None
    world_size: int | None = None
    ranks: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    complete_here: bool = False
    hung: bool | None = None
    culprits: tuple[Place, ...] = ()

    def text(self) -> str:
        return f"job {self.number}: ranks {self.ranks} of {self.world_size}"


class Divergence(Fact, frozen=True, kw_only=True):
    """That ranks past init stand in different calls. `odd` are those that went another way; all where none is the rule.

    `fault`: `rank-conditional` (a call that a condition keeps from some ranks, in `sites`), `collective` (different
    ones at the same point), `group` (new_group not alike), `model` (DDP communicates about different models), `uneven`
    (some left the training loop that others are still in).
    """

    job: int
    fault: Literal["rank-conditional", "collective", "group", "model", "uneven"]
    odd: tuple[int, ...] = ()
    sites: tuple[CallSite, ...] = ()

    def text(self) -> str:
        return f"{self.fault}: {numbers(self.odd)}" if self.odd else self.fault


class FileStoreState(Fact, frozen=True, kw_only=True):
    """The file of a file:// rendezvous: which keys were written more than once, and how long ago it was made.

    `age_s` is the time since it was created, None where the file system does not say.
    """

    path: str
    exists: bool
    written: dict[str, int] = msgspec.field(default_factory=dict)
    age_s: float | None = None
    error: str = ""

    def text(self) -> str:
        if not self.exists:
            return f"{self.path}: {self.error}"
        twice = [key for key, times in self.written.items() if times > 1]
        return f"{self.path}: {len(self.written)} keys" + (f", written twice: {', '.join(twice[:3])}" if twice else "")


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job with the processes that are its ranks, and the others of its family."""

    job: Job
    ranks: tuple[JobRank, ...]
    others: tuple[JobRank, ...] = ()

    @property
    def waiting(self) -> tuple[JobRank, ...]:
        """The ranks that wait for others inside torch.distributed."""
        return tuple(each for each in self.ranks if each.waits_for and each.state != "running")

    def culprits(self) -> tuple[JobRank, ...]:
        """The ranks that others wait for and that wait for nobody."""
        return tuple(each for each in self.ranks if place_of(each.subject) in self.job.culprits)


def jobs(facts: Facts) -> tuple[JobView, ...]:
    """Every job that the facts show."""
    found = []
    for job in facts[Job]:
        hosts = job.hosts or (job.subject.host,)
        mine = [each for each in facts[JobRank] if each.job == job.number and each.subject.host in hosts]
        found.append(
            JobView(
                job=job,
                ranks=tuple(each for each in mine if each.role == "rank"),
                others=tuple(each for each in mine if each.role != "rank"),
            )
        )
    return tuple(found)


def minority(items: Sequence[Item], value: Callable[[Item], Hashable]) -> list[Item]:
    """Those whose value is not the most common one; none where all have one value, or where no value is the rule."""
    counted = Counter(value(item) for item in items).most_common(2)
    if len(counted) < 2 or counted[0][1] == counted[1][1]:
        return []
    return [item for item in items if value(item) != counted[0][0]]


def started_together(ranks: Iterable[JobRank]) -> bool:
    """Whether all were started within a minute: ranks that one shell started long apart may be of two jobs."""
    ticks = [each.subject.start_time for each in ranks if each.subject.start_time is not None]
    return not ticks or max(ticks) - min(ticks) <= 60 * TICKS


def numbers(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0, 2 and 5`; long lists are cut."""
    listed = [str(each) for each in sorted(set(ranks))]
    if len(listed) == 1:
        return f"rank {listed[0]}"
    if len(listed) > 8:
        return f"ranks {', '.join(listed[:7])} and {len(listed) - 7} more"
    return f"ranks {', '.join(listed[:-1])} and {listed[-1]}"


def named(ranks: Iterable[JobRank]) -> str:
    """Ranks in words, by PID where they have no number."""
    every = list(ranks)
    if all(each.rank is not None for each in every):
        return numbers(each.rank for each in every if each.rank is not None)
    return " and ".join(each.name for each in every[:4])
