"""The values everything else passes around: subjects, facts, findings, outcomes, verdicts and reports.

All of them are frozen, typed and serialisable by msgspec. Nothing here touches the system.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar, cast

import msgspec

ProbeStatus = Literal["ok", "timeout", "denied", "absent", "crashed"]
OutcomeStatus = Literal["hit", "clear", "unknown", "not-applicable", "crashed"]
VerdictStatus = Literal["problem", "healthy", "unknown", "nothing"]


class Stage(enum.IntEnum):
    """How far a rank has come in initialising the default group, in order."""

    NOT_STARTED = 0
    PYTHON = 1
    STORE_CONNECT = 2
    STORE_WAIT = 3
    GLOO_MESH = 4
    INITIALIZED = 5
    COMM_BOOTSTRAP = 6
    COMM_TOPOLOGY = 7
    TRANSPORT = 8
    FIRST_COLLECTIVE = 9
    DDP_VERIFY = 10
    TRAINING = 11

    @property
    def label(self) -> str:
        """The stage as the report spells it, such as `store-wait`."""
        return self.name.lower().replace("_", "-")


INIT = frozenset(
    {Stage.STORE_CONNECT, Stage.STORE_WAIT, Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.COMM_TOPOLOGY, Stage.TRANSPORT}
)
"""The stages in which `init_process_group` has not returned (the communicator ones with `device_id=`)."""

ANY_STAGE = frozenset(Stage)


class Severity(enum.Enum):
    """What a finding does to a job: stops it, may stop it, or merely explains a line people worry about."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the gravest."""
        return list(Severity).index(self)


class Confidence(enum.Enum):
    """How sure a finding is; `possible` never becomes the verdict."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        """0 for the surest."""
        return list(Confidence).index(self)


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact is about. `start_time` is in clock ticks since boot, so a recycled PID is another subject."""

    host: str = ""
    pid: int | None = None
    start_time: int | None = None
    thread: int | None = None
    rank: int | None = None

    @property
    def process(self) -> tuple[str, int | None, int | None]:
        """The identity shared by all threads of one process."""
        return (self.host, self.pid, self.start_time)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One quoted observation: which fact, where it was seen, and its value in the system's own words."""

    fact: str
    source: str
    value: str
    rank: int | None = None
    host: str | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=True):
    """One observation of one subject. `source` is where a person can look again: a path, `train.log:88`, `pid 7 thread 9`."""

    subject: Subject = Subject()
    source: str = ""

    @classmethod
    def kind(cls) -> str:
        """The name this kind of fact has in a report or bundle."""
        return str(cls.__struct_config__.tag)

    def text(self) -> str:
        """The value in one line; kinds override it with words a person would quote."""
        skipped = {"subject", "source"}
        pairs = ((name, getattr(self, name)) for name in self.__struct_fields__ if name not in skipped)
        return ", ".join(f"{name}={value!r}" for name, value in pairs if value not in (None, "", ()))

    @property
    def silent(self) -> str:
        """What was asked and gave no answer in time, where that is what this fact says; else empty."""
        return ""

    def evidence(self, value: str | None = None) -> Evidence:
        """This fact as a quotation; `value` replaces the default wording."""
        return Evidence(
            fact=self.kind(),
            source=self.source,
            value=self.text() if value is None else value,
            rank=self.subject.rank,
            host=self.subject.host or None,
        )


class UnknownFact(Fact, frozen=True, kw_only=True):
    """A fact of a kind this version does not know (newer bundle, missing pack): kept, never judged."""

    of_kind: str
    raw: dict[str, Any]


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that was asked for and not obtained, why, and how a person can get it."""

    kind: str
    about: Subject = Subject()
    status: Literal["timeout", "denied", "absent", "crashed"] = "absent"
    reason: str = ""
    how_to_get: str = ""


F = TypeVar("F", bound=Fact)


class Facts:
    """All facts of one examination. `facts[Kind]` is a tuple of them, `facts.lacking(Kind)` what could not be had.

    `looked_for` names the kinds that somebody looked for: none of them there is then an observation too.
    """

    def __init__(
        self, facts: Iterable[Fact] = (), absents: Iterable[Absent] = (), looked_for: Iterable[str] = ()
    ) -> None:
        self._facts = tuple(facts)
        self._absents = tuple(absents)
        self.looked_for = frozenset(looked_for)
        self._by_kind = _by_kind(self._facts)
        self._by_host: dict[str, list[int]] | None = None
        self._absents_by_host: dict[str, list[int]] = {"": []}
        self._on: dict[str, Facts] = {}
        self._by_subject: dict[str, dict[Subject, list[Fact]]] = {}
        """What was asked for by host; thousands of hosts would else each look through the facts of all."""

    def __getitem__(self, kind: type[F]) -> tuple[F, ...]:
        return cast("tuple[F, ...]", self._by_kind.get(kind.kind(), ()))

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def by_subject(self, kind: type[F]) -> dict[Subject, list[F]]:
        """The facts of a kind, those of one subject together."""
        found = self._by_subject.get(kind.kind())
        if found is None:
            found = self._by_subject[kind.kind()] = {}
            for fact in self[kind]:
                found.setdefault(fact.subject, []).append(fact)
        return cast("dict[Subject, list[F]]", found)

    def of(self, kind: type[F], subject: Subject) -> Sequence[F]:
        """The facts of a kind about exactly this subject."""
        return self.by_subject(kind).get(subject, ())

    def first(self, kind: type[F]) -> F | None:
        """The first fact of that kind, or None."""
        found = self[kind]
        return found[0] if found else None

    def lacking(self, kind: type[Fact]) -> tuple[Absent, ...]:
        """What of that kind was asked for and not obtained."""
        return tuple(absent for absent in self._absents if absent.kind == kind.kind())

    def on(self, host: str) -> Facts:
        """What is known about one host, and what names no host."""
        found = self._on.get(host)
        if found is None:
            if self._by_host is None:
                self._by_host = {"": []}
                for number, fact in enumerate(self._facts):
                    self._by_host.setdefault(fact.subject.host, []).append(number)
                for number, absent in enumerate(self._absents):
                    self._absents_by_host.setdefault(absent.about.host, []).append(number)
            numbers = self._by_host[""] + (self._by_host.get(host, []) if host else [])
            lacking = self._absents_by_host[""] + (self._absents_by_host.get(host, []) if host else [])
            found = self._on[host] = Facts(
                [self._facts[number] for number in sorted(numbers)],
                [self._absents[number] for number in sorted(lacking)],
                self.looked_for,
            )
        return found

    @property
    def absents(self) -> tuple[Absent, ...]:
        """Everything that was asked for and not obtained."""
        return self._absents

    def plus(self, facts: Iterable[Fact] = (), absents: Iterable[Absent] = (), looked_for: Iterable[str] = ()) -> Facts:
        """These facts and more; merging ranks is nothing else."""
        more = tuple(facts)
        both = Facts((), (*self._absents, *absents), (*self.looked_for, *looked_for))
        both._facts = (*self._facts, *more)
        # done after each probe and each interpreter, so not all is sorted anew
        both._by_kind = self._by_kind | {
            kind: (*self._by_kind.get(kind, ()), *found) for kind, found in _by_kind(more).items()
        }
        return both


def _by_kind(facts: Iterable[Fact]) -> dict[str, tuple[Fact, ...]]:
    found: dict[str, list[Fact]] = {}
    for fact in facts:
        found.setdefault(fact.kind(), []).append(fact)
    return {kind: tuple(each) for kind, each in found.items()}


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person can paste: shell commands or lines of code, or a unified diff, and what applying it needs."""

    title: str
    commands: tuple[str, ...] = ()
    diff: str | None = None
    needs: str = "job restart"
    proven: dict[str, Any] | None = None


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is only a consequence of a cause, and how often it was seen."""

    source: str
    times: int
    text: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, with quoted evidence and at least one fix."""

    id: str
    name: str
    severity: Severity
    confidence: Confidence
    summary: str
    because: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    explains: tuple[str, ...] = ()
    folded: tuple[Folded, ...] = ()
    url: str | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a check says where a log names its cause: why it hangs, and the fixes that need nothing but the log."""

    because: str
    fixes: tuple[Fix, ...]
    severity: Severity = Severity.ERROR


Kinds = tuple["type[Fact] | tuple[type[Fact], ...]", ...]


class Check:
    """One failure mode: a pure function from facts to findings.

    `needs` lists the kinds of facts without which the check cannot say "clear"; a nested tuple holds alternatives,
    any of which is enough. `also_reads` are kinds that only sharpen a finding. `acts_at` are the stages this cause can
    stop a rank in. `residual` marks a cause that is true whenever some other cause is (a rank is missing *because* ...),
    so it yields to any other about the same ranks.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[Kinds] = ()
    also_reads: ClassVar[tuple[type[Fact], ...]] = ()
    acts_at: ClassVar[frozenset[Stage]] = ANY_STAGE
    residual: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ()
    told: ClassVar[Told | None] = None
    """Its words for a suspicion that a log raised; None for a check that no log line hints at."""

    def not_applicable(self, facts: Facts) -> str:
        """Why this check has nothing to say about these facts, or an empty string."""
        return ""

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        """Yield a finding for each instance of this failure mode that the facts show.

        A check that only logs tell of needs none: the judge turns suspicions of its id into findings with `told`.
        """
        yield from ()

    def finding(
        self,
        summary: str,
        *,
        because: str,
        evidence: Iterable[Evidence],
        fixes: Iterable[Fix],
        severity: Severity = Severity.ERROR,
        confidence: Confidence = Confidence.CERTAIN,
        ranks: Iterable[int] | None = None,
    ) -> Finding:
        """A finding of this check; ranks and hosts are those of the evidence unless given."""
        quoted = tuple(evidence)
        mended = tuple(fixes)
        if not quoted or not mended:
            raise ValueError(f"{self.id} {self.name}: a finding needs evidence and a fix")
        if ranks is None:
            ranks = {item.rank for item in quoted if item.rank is not None}
        return Finding(
            id=self.id,
            name=self.name,
            severity=severity,
            confidence=confidence,
            summary=summary,
            because=because,
            ranks=tuple(sorted(ranks)),
            hosts=tuple(sorted({item.host for item in quoted if item.host})),
            evidence=quoted,
            fixes=mended,
            explains=() if confidence is Confidence.POSSIBLE else self.explains,
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one check concluded, and for anything but hit and clear the reason."""

    id: str
    status: OutcomeStatus
    reason: str = ""
    ms: int = 0


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """How one probe went."""

    name: str
    status: ProbeStatus = "ok"
    ms: int = 0
    reason: str = ""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank waits for: another rank, a store key, a peer address or a lock; None where not known."""

    rank: int | None = None
    key: str | None = None
    peer: str | None = None
    lock: str | None = None


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """Where one rank stands."""

    rank: int | None
    host: str = ""
    pid: int | None = None
    stage: str = Stage.NOT_STARTED.label
    state: Literal["running", "waiting", "stopped", "blocked", "exited"] = "running"
    since_s: float | None = None
    cpu: float | None = None
    where: str = ""
    call: str = ""
    waits_for: tuple[Wait, ...] = ()


class Separator(msgspec.Struct, frozen=True, kw_only=True):
    """The probe or question that tells candidate causes apart."""

    between: tuple[str, ...]
    title: str
    commands: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one cause, or why none could be named."""

    status: VerdictStatus
    finding: str | None = None
    confidence: Confidence | None = None
    summary: str = ""
    candidates: tuple[str, ...] = ()
    separate: Separator | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Which doctor wrote the report."""

    version: str
    command: str
    seconds: float


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What was examined. `python` is the interpreter whose torch was examined and `why_python` how it was chosen."""

    hosts: tuple[str, ...] = ()
    world_size: int | None = None
    launcher: str | None = None
    rank_variables: bool = False
    """Whether the environment holds RANK, WORLD_SIZE or their local ones, whoever set them."""
    torch: str | None = None
    nccl: str | None = None
    gpus: int | None = None
    gpu_name: str | None = None
    python: str | None = None
    why_python: str | None = None
    merged: str | None = None
    """Which ranks were judged together, and how they met; None where one process examined its node."""


class Redacted(msgspec.Struct, frozen=True, kw_only=True):
    """How many values were replaced by stand-ins before the report left the process."""

    hosts: int = 0
    users: int = 0
    secrets: int = 0


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """A check the user switched off, and the reason they gave."""

    id: str
    reason: str = ""


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a healthy report: what a group of checks looked at and, in one sentence, what is there."""

    title: str
    status: OutcomeStatus
    text: str
    ids: tuple[str, ...]


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """How a pack makes an Area: the checks it stands for (ids or prefixes), and a pure sentence about the facts.

    `say` returns an empty string where there is nothing worth a line.
    """

    title: str
    ids: tuple[str, ...]
    say: Callable[[Facts], str]

    def area(self, facts: Facts, outcomes: Iterable[Outcome]) -> Area | None:
        """The area, with the gravest of its checks' outcomes; None if nothing applies or there is nothing to say."""
        mine = [
            outcome for outcome in outcomes if outcome.id.startswith(self.ids) and outcome.status != "not-applicable"
        ]
        text = self.say(facts) if mine else ""
        if not text:
            return None
        status = next((s for s in ("hit", "crashed", "unknown") if any(o.status == s for o in mine)), "clear")
        return Area(
            title=self.title,
            status=cast("OutcomeStatus", status),
            text=text,
            ids=tuple(outcome.id for outcome in mine),
        )


class GpuPair(msgspec.Struct, frozen=True, kw_only=True):
    """How NCCL joins two GPUs of one host, by nvidia-smi's indexes; `first` reads from and writes to `second`."""

    host: str = ""
    first: int
    second: int
    route: str
    link: str = ""
    why: str = ""


class LeftBehind(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was killed and did not die, because the kernel does not let it (state D)."""

    pid: int
    worker: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result of one call; every format is rendered from it."""

    schema: str = "ddp-doctor/report/1"
    tool: Tool
    target: Target
    verdict: Verdict
    ranks: tuple[RankRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    probes: tuple[ProbeRun, ...] = ()
    redacted: Redacted = Redacted()
    ignored: tuple[Ignored, ...] = ()
    areas: tuple[Area, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    left_behind: tuple[LeftBehind, ...] = ()
    interrupted: str | None = None

    def to_json(self) -> str:
        """The report as indented JSON, schema `ddp-doctor/report/1`."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()
