"""The nodes that a report is against, as `srun --exclude` and `sbatch --exclude` take them."""

from __future__ import annotations

from collections.abc import Mapping

from ddp_doctor.model import Confidence, Report, Severity
from ddp_doctor.rank.node_list import nodes_of_step

OF_A_NODE = ("DDP3", "DDP4", "DDP5", "DDP608")
"""What another node may cure; a fault of the launch or the program follows the job there."""
PATHS = "DDP3"
NOT_CAME = "DDP101"


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
    listed = list(nodes_of_step(environ))
    came = {_short(host) for host in everybody}
    if missing:
        found.update(node for node in listed if _short(node) not in came)
    names = {_short(node): node for node in listed}
    return tuple(sorted({names.get(_short(host), host) for host in found}))


def _short(host: str) -> str:
    return host.partition(".")[0]
