"""The NCCL lines of the ranks of one communicator to where each stopped, and to the one fault that explains it.

A line says what has been done, so a rank stands *behind* its last line; which step comes next depends on the version.
Where NCCL itself names the fault, often on one rank only (most often rank 0's root thread), that line decides. Where it is
silent, the culprit is the rank that does not wait for others: it stands in a system call that is not a socket's, or behind
all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec

from ddp_doctor.facts.communicator import STAGES, CommunicatorCause, CommunicatorRank, CommunicatorStop, Fault, Phase
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts, Subject
from ddp_doctor.readers.nccl_log import PHASES, NcclLine, PhaseReader, is_noise, parse_all

IDLE = frozenset({"polls", "computes", "socket", "sleep", "lock", "read"})
"""What a thread that waits for another rank, or works, does; anything else is a system call that does not return."""

_USING = re.compile(r"Bootstrap ?: Using ([^:\s]+):(\S+?)<\d+>")
_VIA = re.compile(r" via (P2P|SHM|NET)\b")
_CONNECT = re.compile(
    r"[Cc]onnect to (?P<address>\S+?)<\d+> (?:returned|failed ?:) ?(?P<error>[A-Z][\w ]+?)"
    r"(?:, (?:retrying|exceeded)|$)"
)
_DUPLICATE_GPU = re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+)|Multiple [Rr]anks .*the same GPU")


class RankLog(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator: its NCCL lines, and what else is known of it.

    `machine` tells hosts (or network namespaces) apart. `step`, `outcome`, `threads` and the rest are known of ranks that
    the doctor started itself only.
    """

    rank: int
    lines: tuple[NcclLine, ...]
    world_size: int | None = None
    version: tuple[int, ...] = ()
    machine: str = ""
    gpu: str = ""
    subject: Subject = Subject()
    source: str = ""
    trial: CommunicatorRank | None = None

    @property
    def phase(self) -> Phase:
        """How far it has come."""
        return phase_of(self.lines, self.version)[0]

    @property
    def stuck(self) -> str:
        """The system call that does not return and is no wait for another rank; empty if none."""
        threads = self.trial.threads.values() if self.trial else ()
        return next((call for call in threads if call not in IDLE), "")

    @property
    def via(self) -> str:
        """The transport of its last channel: P2P, SHM or NET; empty before."""
        return next((found[1] for line in reversed(self.lines) if (found := _VIA.search(line.message))), "")

    @property
    def address(self) -> tuple[str, str]:
        """The interface and IP it told the others to connect to."""
        for line in self.lines:
            found = _USING.search(line.message)
            if found:
                return found[1], found[2]
        return "", ""

    def warning(self) -> NcclLine | None:
        """Its last WARN that a healthy NCCL does not print."""
        return next((line for line in reversed(self.lines) if line.level == "WARN" and not is_noise(line)), None)


def version_of(lines: Sequence[NcclLine]) -> tuple[int, ...]:
    """The version in NCCL's own lines; empty where none says it."""
    for line in lines:
        found = re.search(r"NCCL version (\d+)\.(\d+)\.(\d+)", line.message)
        if found:
            return tuple(int(part) for part in found.groups())
    return ()


def phase_of(lines: Sequence[NcclLine], version: tuple[int, ...]) -> tuple[Phase, NcclLine | None]:
    """The phase behind the last line that shows progress, and that line. Without a version, the newer order."""
    reader = PhaseReader(version)
    decisive = None
    for line in lines:
        if line.level in ("INFO", "VERSION") and reader.feed(line.message):
            decisive = line
    return reader.phase, decisive


def find_cause(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    """The one fault, None if every rank came through (as far as these lines tell) and nothing is odd."""
    for rule in _RULES:
        cause = rule(ranks)
        if cause is not None:
            return cause
    return None


def _cause(
    fault: Fault,
    ranks: Sequence[RankLog],
    culprits: Sequence[int],
    line: str = "",
    *,
    by: RankLog | None = None,
    certain: bool = True,
    **details: str,
) -> CommunicatorCause:
    culprits = tuple(sorted(set(culprits)))
    witness = by or next((rank for rank in ranks if rank.rank in culprits), ranks[0])
    return CommunicatorCause(
        subject=Subject(host=witness.subject.host, pid=witness.subject.pid, rank=witness.rank),
        source=witness.source,
        fault=fault,
        ranks=culprits,
        waiting=tuple(sorted({rank.rank for rank in ranks} - set(culprits))),
        line=line,
        certain=certain,
        details=details,
    )


def _said(ranks: Sequence[RankLog], *patterns: str) -> Iterator[tuple[RankLog, NcclLine, re.Match[str]]]:
    for pattern in patterns:
        for rank in ranks:
            for line in rank.lines:
                found = re.search(pattern, line.message)
                if found:
                    yield rank, line, found


def _by_line(fault: Fault, *patterns: str) -> Callable[[Sequence[RankLog]], CommunicatorCause | None]:
    """The ranks that print a line have the fault it names."""

    def rule(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
        said = list(_said(ranks, *patterns))
        if not said:
            return None
        return _cause(fault, ranks, [rank.rank for rank, _, _ in said], said[0][1].text(), by=said[0][0])

    return rule


def _interface(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    said = list(_said(ranks, "no socket interface found", "No usable listening interface found"))
    if not said:
        return None
    first = said[0][0]
    value = first.trial.variables.get("NCCL_SOCKET_IFNAME", "") if first.trial else ""
    for _, _, found in _said([first], r"NCCL_SOCKET_IFNAME set by environment to (\S*)"):
        value = found[1]
    return _cause("interface", ranks, [rank.rank for rank, _, _ in said], said[0][1].text(), by=first, value=value)


def _nccl_version(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    versions = {rank.version for rank in ranks if rank.version}
    if len(versions) > 1:
        by_version = {v: [rank.rank for rank in ranks if rank.version == v] for v in versions}
        most = max(len(members) for members in by_version.values())
        few = [rank for members in by_version.values() if len(members) < most for rank in members]
        told = ", ".join(
            f"{'.'.join(map(str, version))} on rank {', '.join(map(str, members))}"
            for version, members in sorted(by_version.items())
        )
        return _cause("nccl-version", ranks, few or [rank.rank for rank in ranks], f"NCCL {told}")
    if any(rank.trial for rank in ranks):
        return None
    for rank, line, _ in _said(ranks, "Mismatched NCCL version", r"Message truncated : received \d+ bytes instead of"):
        return _cause("nccl-version", ranks, [each.rank for each in ranks], line.text(), by=rank)
    for rank, line, found in _said(ranks, r"mismatch in info .* nranks (\d+) vs (\d+).*offset \d+ vs (-?\d+)"):
        if found[1] == found[2]:
            return _cause("nccl-version", ranks, [each.rank for each in ranks], line.text(), by=rank)
    return None


def _world_size(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    sizes = {rank.rank: rank.world_size for rank in ranks if rank.world_size}
    lines = [
        (rank, line)
        for rank, line, found in _said(
            ranks,
            r"mismatch in info from procs, nranks (\d+) vs (\d+)",
            r"mismatch in rank count from procs (\d+) : (\d+)",
        )
        if found[1] != found[2]
    ]
    if len(set(sizes.values())) < 2 and not lines:
        return None
    told = ", ".join(f"rank {rank}: {size}" for rank, size in sorted(sizes.items()))
    culprits = list(sizes) if len(set(sizes.values())) > 1 else [rank.rank for rank in ranks]
    return _cause(
        "world-size",
        ranks,
        culprits,
        lines[0][1].text() if lines else told,
        by=lines[0][0] if lines else None,
        sizes=told,
    )


def _duplicate_rank(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    numbers = [rank.rank for rank in ranks]
    twice = [number for number in numbers if numbers.count(number) > 1]
    for rank, line, found in _said(ranks, r"rank (\d+) of \d+ ranks has already checked in"):
        return _cause("duplicate-rank", ranks, [int(found[1])], line.text(), by=rank)
    return _cause("duplicate-rank", ranks, twice, f"rank {twice[0]} was started twice") if twice else None


def _duplicate_gpu(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    said = list(_said(ranks, _DUPLICATE_GPU.pattern))
    if not said:
        return None
    culprits = [int(number) for _, _, found in said for number in found.groups() if number]
    gpus = [(rank.machine, rank.gpu) for rank in ranks]
    culprits += [rank.rank for rank in ranks if rank.gpu and gpus.count((rank.machine, rank.gpu)) > 1]
    return _cause("duplicate-gpu", ranks, culprits or [said[0][0].rank], said[0][1].text(), by=said[0][0])


def _shm_full(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    said = list(_said(ranks, r"failed to extend /dev/shm\S* to (\d+)", "rror while creating shared memory segment"))
    if said:
        rank, line, found = said[0]
        needed = found[1] if found.groups() else ""
        return _cause("shm-full", ranks, [each.rank for each, _, _ in said], line.text(), by=rank, bytes=needed)
    # up to 2.18 the file is only extended, not allocated: the first write past the end kills the process
    killed = [
        rank for rank in ranks if rank.trial and rank.trial.outcome == "crashed" and "code -7" in rank.trial.error
    ]
    if killed:
        died = f"{killed[0].trial.error}, SIGBUS" if killed[0].trial else ""
        return _cause("shm-full", ranks, [rank.rank for rank in killed], died, certain=False)
    return None


def _net_absent(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    said = list(_said(ranks, "Failed to initialize any NET plugin", r"Error: network \S+ not found"))
    if not said:
        return None
    first = said[0][0]
    wanted = first.trial.variables.get("NCCL_NET", "") if first.trial else ""
    return _cause("net-absent", ranks, [rank.rank for rank, _, _ in said], said[0][1].text(), by=first, net=wanted)


def _unreachable(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    """Somebody cannot connect: the fault is with the rank that advertised the address."""
    gone = {rank.rank for rank in ranks if rank.trial and rank.trial.outcome == "crashed"}
    for rank, line, found in _said(ranks, _CONNECT.pattern):
        address = found["address"].strip("[]")
        owners = [other for other in ranks if other.address[1].strip("[]") == address]
        if not owners or any(owner.rank in gone for owner in owners):
            continue
        machines = {owner.machine for owner in owners}
        interface = owners[0].address[0]
        # a rank that stands on one machine with the one it cannot reach was refused for another reason: it died
        if len(machines) == 1 and rank.machine in machines and len(owners) == len(ranks):
            continue
        return _cause(
            "unreachable",
            ranks,
            [owner.rank for owner in owners],
            line.text(),
            by=rank,
            address=address,
            interface=interface,
            error=found["error"],
            shared="yes" if len(machines) > 1 else "",
        )
    return None


def _missing(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    size = max((rank.world_size or 0 for rank in ranks), default=0)
    absent = sorted(set(range(size)) - {rank.rank for rank in ranks})
    waiting = [rank for rank in ranks if rank.phase == "bootstrap"]
    if not absent or not waiting:
        return None
    _, line = phase_of(waiting[0].lines, waiting[0].version)
    return _cause("missing", ranks, absent, line.text() if line else "", by=waiting[0])


def _wrong_values(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    wrong = [rank for rank in ranks if rank.trial and rank.trial.value_ok is False]
    if not wrong:
        return None
    return _cause(
        "wrong-values", ranks, [rank.rank for rank in wrong], "the all-reduce returned wrong values", via=wrong[0].via
    )


def _late(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    """A rank of ours that stands outside NCCL: the driver or the loading of the library did not end, or failed."""
    for fault, step in (("late-in-device", "device"), ("late-in-library", "library"), ("late-in-device", "buffer")):
        late = [rank for rank in ranks if rank.trial and rank.trial.step == step and rank.trial.outcome != "passed"]
        if late and late[0].trial:
            culprits = [rank.rank for rank in late]
            return _cause(cast("Fault", fault), ranks, culprits, late[0].trial.text(), error=late[0].trial.error)
    return None


def _collective(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    trials = [rank for rank in ranks if rank.trial and rank.trial.outcome == "timeout"]
    launched = [rank for rank in trials if rank.trial and rank.trial.step == "all-reduce on the GPU"]
    if not launched:
        return None
    if len(launched) < len(trials):
        absent = [rank for rank in trials if rank not in launched]
        return _cause(
            "absent-from-collective",
            ranks,
            [rank.rank for rank in absent],
            f"{absent[0].trial.text() if absent[0].trial else ''}; rank {launched[0].rank} waits for it on the GPU",
            certain=False,
            call=absent[0].stuck,
        )
    line = f"every rank launched its all-reduce via {launched[0].via or 'an unknown transport'} and none ended"
    return _cause(
        "stuck-in-collective", ranks, [rank.rank for rank in launched], line, certain=False, via=launched[0].via
    )


def _stuck(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    """No rank says anything and none failed: one stands in a call that does not return, or behind all others."""
    open_ranks = [rank for rank in ranks if not rank.trial or rank.trial.outcome in ("timeout", "unfinished")]
    if not open_ranks or len(open_ranks) < len(ranks):
        return None
    stuck = [rank for rank in open_ranks if rank.stuck]
    if not stuck:
        order = [PHASES.index(rank.phase) for rank in open_ranks]
        if min(order) == max(order):
            return None
        stuck = [rank for rank, place in zip(open_ranks, order, strict=True) if place == min(order)]
    first = stuck[0]
    phase, line = phase_of(first.lines, first.version)
    connecting = "connect" in phase and any(rank.via == "P2P" for rank in ranks)
    return _cause(
        "stuck-in-connect" if connecting else "stuck-in-driver",
        ranks,
        [rank.rank for rank in stuck],
        line.text() if line else "",
        by=first,
        certain=False,
        phase=phase,
        call=first.stuck,
    )


def _shm_apart(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    """Ranks that the doctor started on one machine, and that NCCL takes for ranks of several."""
    devices = {rank.trial.shm_device for rank in ranks if rank.trial and rank.trial.shm_device is not None}
    apart = [
        (rank, line)
        for rank, line, found in _said(ranks, r"nRanks (\d+) nNodes (\d+)")
        if int(found[2]) > 1 and rank.trial
    ]
    same_network = len({rank.machine for rank in ranks}) == 1
    if not same_network or (len(devices) < 2 and not apart) or not all(rank.trial for rank in ranks):
        return None
    told = ", ".join(f"rank {rank.rank}: st_dev {rank.trial.shm_device}" for rank in ranks if rank.trial)
    line = apart[0][1].text() if apart else f"/dev/shm of {told}"
    return _cause(
        "shm-apart",
        ranks,
        [rank.rank for rank in ranks],
        line,
        devices=told if len(devices) > 1 else "",
        via=ranks[0].via,
    )


def _unnamed(ranks: Sequence[RankLog]) -> CommunicatorCause | None:
    failed = [rank for rank in ranks if rank.trial and rank.trial.outcome in ("failed", "crashed")]
    if failed:
        warned = failed[0].warning()
        text = warned.text() if warned else failed[0].trial.text() if failed[0].trial else ""
        return _cause("unnamed", ranks, [failed[0].rank], text, certain=False)
    waiting = [rank for rank in ranks if rank.trial and rank.trial.outcome == "timeout"]
    if waiting:
        told = ", ".join(f"rank {rank.rank} in {rank.phase}" for rank in waiting)
        return _cause("unnamed", ranks, [rank.rank for rank in waiting], told, certain=False)
    return None


_RULES: tuple[Callable[[Sequence[RankLog]], CommunicatorCause | None], ...] = (
    _interface,
    _nccl_version,
    _duplicate_rank,
    _world_size,
    _duplicate_gpu,
    _by_line("driver-version", r"nvmlInit_v2\(\) failed: Driver/library version mismatch"),
    _by_line("nvml-missing", r"Failed to open libnvidia-ml", r"nvmlInit_v2\(\) failed"),
    _shm_full,
    _net_absent,
    _by_line("nvlink-without-p2p", "P2P is disabled between NVLINK"),
    _by_line("no-transport", "No transport found for rank"),
    _unreachable,
    _late,
    _missing,
    _wrong_values,
    _collective,
    _stuck,
    _unnamed,
    _shm_apart,
)


def interpret(facts: Facts) -> list[Fact]:
    """A CommunicatorStop for each rank of a trial, and the CommunicatorCause if there is one."""
    logs = [_rank_log(fact) for fact in facts[CommunicatorRank] if not fact.without_p2p]
    compared = [fact for fact in facts[CommunicatorRank] if fact.without_p2p]
    found: list[Fact] = []
    for log in logs:
        phase, line = phase_of(log.lines, log.version)
        warning = log.warning()
        found.append(
            CommunicatorStop(
                subject=log.subject,
                source=log.source,
                rank=log.rank,
                phase=phase,
                stage=STAGES[phase],
                version=".".join(map(str, log.version)),
                line=line.text() if line else "",
                warning=warning.text() if warning else "",
            )
        )
    cause = find_cause(logs) if logs else None
    if cause and compared:
        passed = all(fact.outcome == "passed" for fact in compared)
        details = {**cause.details, "without_p2p": "passed" if passed else "failed"}
        cause = msgspec.structs.replace(cause, details=details)
    return [*found, cause] if cause else found


def _rank_log(fact: CommunicatorRank) -> RankLog:
    lines = tuple(line for text in fact.lines for line in parse_all(text))
    version = tuple(int(part) for part in fact.version.split(".")) if fact.version else version_of(lines)
    return RankLog(
        rank=fact.rank,
        lines=lines,
        world_size=fact.world_size,
        version=version,
        machine=f"{fact.subject.host} {fact.network}",
        gpu=fact.uuid,
        subject=fact.subject,
        source=fact.source,
        trial=fact,
    )


INTERPRETER = Interpreter(reads=(CommunicatorRank,), gives=(CommunicatorStop, CommunicatorCause), interpret=interpret)
