"""The report of NCCL's RAS service, as text (2.24 and later) or as JSON (2.28.7 and later), to facts."""

from __future__ import annotations

import json
import re
from typing import Any

from ddp_doctor.facts.nccl_live import RasCommunicator, RasRank
from ddp_doctor.model import Subject
from ddp_doctor.readers.line import harmless_text

MOST_RANKS = 4096
_VERSION = re.compile(r"^NCCL version (\d+\.\d+\.\d+)", re.M)
_GROUP = re.compile(r"^ +(\d+) +(\d+) +(\S+) +(\S+) +(\S+) +(\d+) +([A-Z,]+) +([A-Z]+) *$", re.M)
_WARNING = re.compile(r"^#(\d+)-\d+ \(\w+\) [A-Z]+\n((?:  .+\n?)+)", re.M)
_RANK = re.compile(
    r"Rank (?P<rank>\d+) (?:has launched up to operation (?P<count>\d+)|(?P<none>has not launched any operations))?"
    r".*?(?:managed by process (?P<pid>\d+) on node (?P<host>\S+))?$"
)


def read_ras(text: str, source: str, host: str = "") -> list[RasCommunicator]:
    """A fact per communicator, or per group of equal ones in the text form; raises ValueError for anything else."""
    if text.lstrip().startswith("{"):
        return _from_json(text, source, host)
    version = _VERSION.search(text)
    if version is None:
        raise ValueError("not a report of NCCL's RAS")
    warnings = {match[1]: match[2] for match in _WARNING.finditer(text)}
    found = []
    for match in _GROUP.finditer(text):
        lines = tuple(harmless_text(line.strip())[:200] for line in warnings.get(match[1], "").splitlines())
        ranks = tuple(
            RasRank(
                rank=int(told["rank"]),
                pid=int(told["pid"]) if told["pid"] else None,
                host=told["host"] or "",
                ready=True,
                launched=int(told["count"]) if told["count"] else 0,
            )
            for line in lines
            if (told := _RANK.match(line)) and (told["count"] or told["none"])
        )
        found.append(
            RasCommunicator(
                subject=Subject(host=host),
                source=source,
                version=version[1],
                size=int(match[6]) // max(1, int(match[2])),
                status=match[7],
                errors=match[8],
                ranks=ranks,
                lines=lines,
            )
        )
    return found


def _from_json(text: str, source: str, host: str) -> list[RasCommunicator]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a report of NCCL's RAS: {error}") from None
    communicators = told.get("communicators") if isinstance(told, dict) else None
    if not isinstance(communicators, list):
        raise ValueError("not a report of NCCL's RAS: no communicators")
    found = []
    for each in communicators:
        if not isinstance(each, dict):
            continue
        there = [_rank(rank) for rank in _list(each.get("ranks"))]
        lost = [_rank(rank, lost=True) for rank in _list(each.get("missing_ranks"))]
        ranks = tuple(rank for rank in (*there, *lost) if rank is not None)
        alive = [rank for rank in ranks if not rank.lost]
        counts = {rank.launched for rank in alive}
        found.append(
            RasCommunicator(
                subject=Subject(host=host),
                source=source,
                version=str(told.get("nccl_version", "")),
                size=each.get("size") if isinstance(each.get("size"), int) else None,
                status="INIT" if any(rank.ready is False for rank in alive) else "RUNNING",
                errors="INCOMPLETE" if len(alive) < len(ranks) else "MISMATCH" if len(counts) > 1 else "OK",
                ranks=ranks,
            )
        )
    return found


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value[:MOST_RANKS] if isinstance(each, dict)] if isinstance(value, list) else []


def _rank(told: dict[str, Any], *, lost: bool = False) -> RasRank | None:
    rank, pid, status, counts = (told.get(name) for name in ("rank", "pid", "status", "collective_counts"))
    if not isinstance(rank, int):
        return None
    state = status.get("init_state") if isinstance(status, dict) else None
    return RasRank(
        rank=rank,
        pid=pid if isinstance(pid, int) else None,
        host=harmless_text(str(told.get("host", "")))[:80],
        ready=None if lost or state is None else state == 0,
        launched=sum(count for count in counts.values() if isinstance(count, int))
        if isinstance(counts, dict)
        else None,
        lost=lost,
    )
