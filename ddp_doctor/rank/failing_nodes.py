"""The nodes that a report is against, as `srun --exclude` and `sbatch --exclude` take them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ddp_doctor.model import Confidence, Report, Severity

OF_A_NODE = ("DDP3", "DDP4", "DDP5", "DDP608")
"""What another node may cure; a fault of the launch or the program follows the job there."""
PATHS = "DDP3"
NOT_CAME = "DDP101"
MOST_NODES = 100_000


def failing_nodes(report: Report, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Nodes with an error of their own, and those of the Slurm step of `environ` from which no rank came."""
    hosts_of = {row.rank: row.host for row in report.ranks if row.host and row.rank is not None}
    found: set[str] = set()
    missing = False
    everybody = {*report.target.hosts, *hosts_of.values()}
    for finding in report.findings:
        if finding.confidence is Confidence.POSSIBLE or finding.id in report.verdict.candidates:
            continue
        here = {hosts_of[rank] for rank in finding.ranks if rank in hosts_of}
        if finding.id == NOT_CAME:
            missing = missing or not all(rank in hosts_of for rank in finding.ranks)
            alive = {row.host for row in report.ranks if row.state != "exited" and row.rank in finding.ranks}
            found |= here & alive
        elif finding.severity is Severity.ERROR and finding.id.startswith(OF_A_NODE):
            # paths are quoted by the host that tried them, which need not be the one at fault
            blamed = here if finding.ranks and finding.id.startswith(PATHS) else here or set(finding.hosts)
            # what all hosts of a job have in common is no node's own
            found |= blamed if len(everybody) < 2 or blamed < everybody else set()
    listed = list(expanded(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""))
    came = {_short(host) for host in everybody}
    if missing:
        found.update(node for node in listed if _short(node) not in came)
    names = {_short(node): node for node in listed}
    return tuple(sorted({names.get(_short(host), host) for host in found}))


def _short(host: str) -> str:
    return host.partition(".")[0]


def expanded(nodelist: str) -> Iterator[str]:
    """The nodes of a list as Slurm writes it, `gpu-[01-03,7],login`; what is no such list yields nothing."""
    room = MOST_NODES
    for entry in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", nodelist):
        pieces = re.split(r"\[([^\]]*)\]", entry)
        names = [pieces[0]]
        for numbers, after in zip(pieces[1::2], pieces[2::2], strict=True):
            names = [f"{name}{number}{after}" for name in names for number in _numbers(numbers, room // len(names))]
            if not names:
                break
        yield from names[:room]
        room -= len(names)
        if room <= 0:
            return


def _numbers(text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if ends is None:
            continue
        first, last = int(ends[1]), int(ends[2] or ends[1])
        found += [f"{number:0{len(ends[1])}d}" for number in range(first, min(last, first + most) + 1)]
    return found[:most]
