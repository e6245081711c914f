"""Which nodes a report is against, and how they are spelt."""

from __future__ import annotations

import pytest

from ddp_doctor.model import Confidence, Evidence, Finding, Fix, RankRow, Report, Severity, Target, Tool, Verdict
from ddp_doctor.rank.failing_nodes import failing_nodes
from ddp_doctor.rank.node_list import expanded

SLURM = {"SLURM_STEP_NODELIST": "gpu-[01-03]"}
ROWS = tuple(RankRow(rank=rank, host=f"gpu-0{rank + 1}.cluster") for rank in range(3))


def finding(id: str, *hosts: str, ranks: tuple[int, ...] = (), **changes: object) -> Finding:
    quoted = tuple(Evidence(fact="Port", source="here", value="it", host=host) for host in hosts)
    return Finding(
        **{
            "id": id, "name": "it", "severity": Severity.ERROR, "confidence": Confidence.CERTAIN, "summary": "it",
            "because": "so", "ranks": ranks, "hosts": hosts, "evidence": quoted, "fixes": (Fix(title="do"),), **changes,
        }
    )  # fmt: skip


def report(*findings: Finding, rows: tuple[RankRow, ...] = ROWS) -> Report:
    hosts = tuple(dict.fromkeys(row.host for row in rows if row.host))
    return Report(
        tool=Tool(version="0", command="run", seconds=0.0),
        target=Target(hosts=hosts),
        verdict=Verdict(status="problem", summary=""),
        ranks=rows,
        findings=findings,
    )


def test_a_fault_of_a_gpu_is_its_host_s_by_the_name_that_slurm_has_for_it() -> None:
    assert failing_nodes(report(finding("DDP406", "gpu-02.cluster")), SLURM) == ("gpu-02",)


def test_without_slurm_the_host_s_own_name_stands() -> None:
    assert failing_nodes(report(finding("DDP406", "gpu-02.cluster")), {}) == ("gpu-02.cluster",)


def test_a_path_breaks_at_the_host_of_its_ranks_not_at_the_one_that_tried_it() -> None:
    assert failing_nodes(report(finding("DDP302", "gpu-01.cluster", ranks=(2,))), SLURM) == ("gpu-03",)


@pytest.mark.parametrize(
    "harmless",
    [
        finding("DDP117", "gpu-01.cluster", ranks=(0,)),
        finding("DDP601", "gpu-01.cluster", ranks=(0,)),
        finding("DDP503", "gpu-01.cluster", severity=Severity.WARNING),
        finding("DDP302", "gpu-01.cluster", ranks=(0,), confidence=Confidence.POSSIBLE),
        finding("DDP503", "gpu-01.cluster", "gpu-02.cluster", "gpu-03.cluster"),
    ],
)
def test_the_launch_the_program_and_what_is_not_sure_exclude_nobody(harmless: Finding) -> None:
    assert failing_nodes(report(harmless), SLURM) == ()


def test_a_node_of_the_step_from_which_nobody_came_is_named() -> None:
    rows = (*ROWS[:2], RankRow(rank=2, where="did not come"))
    late = finding("DDP101", ranks=(2,), severity=Severity.WARNING)
    assert failing_nodes(report(late, rows=rows), SLURM) == ("gpu-03",)
    assert failing_nodes(report(late, rows=rows), {}) == ()


def test_a_rank_that_ended_is_no_fault_of_its_node_and_one_that_was_cut_off_is() -> None:
    ended = (*ROWS[:2], RankRow(rank=2, host="gpu-03.cluster", state="exited"))
    assert failing_nodes(report(finding("DDP101", ranks=(2,)), rows=ended), SLURM) == ()
    assert failing_nodes(report(finding("DDP101", ranks=(2,))), SLURM) == ("gpu-03",)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[08-10,2]-x,m", ["n08-x", "n09-x", "n10-x", "n2-x", "m"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
        ("n[x]", []),
    ],
)
def test_a_node_list_of_slurm_is_expanded(text: str, nodes: list[str]) -> None:
    assert list(expanded(text)) == nodes


def test_an_absurd_node_list_is_bounded() -> None:
    assert len(list(expanded("n[1-999999999]"))) <= 100_000
