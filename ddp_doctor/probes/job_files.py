"""The files of a running job: what its ranks print to, and what torch's flight recorder wrote."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.job import Process
from ddp_doctor.facts.log import LogEvent, NcclProgress, Recorded
from ddp_doctor.host import Host
from ddp_doctor.interpret.family import rank_of, size_of
from ddp_doctor.model import Fact, Facts, Subject
from ddp_doctor.readers.flight_recorder import read_recording
from ddp_doctor.readers.log import LogReader
from ddp_doctor.signatures import Signature

HEAD, TAIL = 1 << 19, 1 << 19
LARGEST_DUMP = 8 << 20
MOST_OUTPUTS = 24
MOST_DUMPS = 512
SECONDS = 3.0
DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_DUMPS = ("/tmp/nccl_trace_rank_", "{cache}/torch/comm_lib_trace_rank_")


def probe(signatures: Callable[[], Sequence[Signature]]) -> Probe:
    """The probe that reads them; `signatures` are those of all packs."""

    def take(host: Host, known: Facts) -> Iterator[Observation]:
        yield from _take(host, known, signatures)

    return Probe(name="files", gives=(LogEvent, NcclProgress, Recorded), builds_on=(Process,), take=take)


def _take(host: Host, known: Facts, signatures: Callable[[], Sequence[Signature]]) -> Iterator[Observation]:
    processes = {each.pid: each for each in known[Process] if not each.gone}
    outputs = [
        {"pid": each.pid, "descriptor": descriptor, "path": path}
        for each in processes.values()
        for descriptor, path in each.output.items()
    ]
    dumps = _dumps(list(processes.values()))
    if not outputs and not dumps:
        return
    oldest = max((each.age_s or 0.0 for each in processes.values()), default=0.0)
    request = {
        "outputs": _one_each(outputs),
        "dumps": list(dumps)[:MOST_DUMPS],
        "since": time.time() - oldest,
        "head": HEAD,
        "tail": TAIL,
        "largest": LARGEST_DUMP,
    }
    answer = host.ask("job_files", request, seconds=SECONDS)
    yield from _facts(answer.messages, processes, dumps, signatures)


def _one_each(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each path of each process once; many ranks of one log are asked once more for their PIDs only."""
    distinct = {(each["pid"], each["path"]): each for each in outputs}
    return list(distinct.values())[:MOST_OUTPUTS]


def _dumps(processes: Sequence[Process]) -> dict[str, int]:
    """Path of a possible dump, as seen from here -> rank."""
    found: dict[str, int] = {}
    for each in processes:
        rank, size = rank_of(each), size_of(each)
        named = [each.variables[name] for name in DUMP_VARIABLES if each.variables.get(name)]
        if rank is None or size is None or not (named or each.nccl):
            continue
        home = each.variables.get("HOME", "")
        cache = each.variables.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
        defaults = [path.format(cache=cache) for path in DEFAULT_DUMPS if cache or "{" not in path]
        for prefix in named or defaults:
            found.setdefault(f"/proc/{each.pid}/root{prefix}{rank}", rank)
    return found


def _facts(
    messages: Sequence[Mapping[str, Any]],
    processes: Mapping[int, Process],
    dumps: Mapping[str, int],
    signatures: Callable[[], Sequence[Signature]],
) -> Iterator[Fact]:
    logs: dict[tuple[int, ...], _Log] = {}
    recordings: dict[str, list[bytes]] = {}
    target: list[bytes] = []
    for message in messages:
        if "output" in message and "key" in message:
            log = logs.setdefault(tuple(message["key"]), _Log(message["output"], message["appended"]))
            log.writers.append(processes[message["pid"]])
            target = log.pieces
        elif "dump" in message:
            target = recordings.setdefault(message["dump"], [])
        elif "data" in message:
            target.append(base64.b64decode(message["data"]))
    reader = LogReader(signatures()) if logs else None
    for place, log in enumerate(logs.values()):
        if reader is not None:
            yield from log.facts(reader, place << 32, processes)
    for path, pieces in recordings.items():
        try:
            yield from (_of_rank(each, dumps[path]) for each in read_recording(b"".join(pieces), path))
        except ValueError:
            continue  # it is being written, or is no dump


def _of_rank(fact: Recorded, rank: int) -> Recorded:
    return msgspec.structs.replace(fact, subject=msgspec.structs.replace(fact.subject, rank=rank))


class _Log:
    """One file and the processes that print to it."""

    def __init__(self, path: str, appended: bool) -> None:
        self.path, self.appended = path, appended
        self.writers: list[Process] = []
        self.pieces: list[bytes] = []

    def facts(self, reader: LogReader, base: int, processes: Mapping[int, Process]) -> Iterator[Fact]:
        """What it says about these processes: NCCL's lines by their PID, other lines where they are of this run."""
        by_pid = {pid: each for each in processes.values() for pid in (each.pid, each.inner_pid) if pid}
        lost = _lost_rank(list(processes.values()))
        for fact in reader.read_blocks(self.pieces, self.path, base):
            process = by_pid.get(fact.subject.pid or 0)
            if isinstance(fact, NcclProgress):
                if process is not None:
                    yield msgspec.structs.replace(fact, subject=_subject(process, fact.rank))
            elif isinstance(fact, LogEvent) and fact.sort == "cause" and not self.appended:
                if process is not None:
                    yield msgspec.structs.replace(fact, subject=_subject(process, fact.subject.rank))
                elif fact.subject.pid is not None and fact.subject.rank is None:
                    # a process that printed this and is gone
                    yield msgspec.structs.replace(fact, subject=msgspec.structs.replace(fact.subject, rank=lost))
                else:
                    yield fact


def _lost_rank(processes: Sequence[Process]) -> int | None:
    """The rank of a process that is gone, where just one of the job is."""
    sizes = {size_of(each) for each in processes} - {None}
    size = sizes.pop() if len(sizes) == 1 else None
    gone = set(range(size or 0)) - {rank_of(each) for each in processes}
    return gone.pop() if len(gone) == 1 else None


def _subject(process: Process, rank: int | None) -> Subject:
    own = rank if rank is not None else rank_of(process)
    return Subject(host=process.subject.host, pid=process.pid, start_time=process.subject.start_time, rank=own)
