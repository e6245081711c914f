"""Pairs of GPUs in the report for a person: a matrix, where there is something to see in it."""

from __future__ import annotations

from ddp_doctor.model import GpuPair, Report, Target, Tool, Verdict
from ddp_doctor.render.text import Style, render


def shown(*routes: tuple[int, int, str], verbose: int = 0) -> list[str]:
    report = Report(
        tool=Tool(version="0.1", command="run", seconds=1.0),
        target=Target(),
        verdict=Verdict(status="healthy"),
        pairs=tuple(GpuPair(host="vm", first=first, second=second, route=route) for first, second, route in routes),
    )
    return [line for line in render(report, Style(verbose=verbose)).splitlines() if line.startswith("  ")]


def test_a_row_reads_and_writes_the_gpu_of_its_column() -> None:
    assert shown((0, 1, "p2p"), (1, 0, "shm")) == ["        GPU0  GPU1", "  GPU0  -     P2P", "  GPU1  SHM   -"]


def test_p2p_everywhere_needs_no_matrix() -> None:
    everywhere = ((0, 1, "p2p"), (1, 0, "p2p"))
    assert shown(*everywhere) == []
    assert shown(*everywhere, verbose=1)[-3:] != []


def test_what_is_not_known_of_a_pair_is_shown_as_such() -> None:
    assert shown((0, 11, "net"))[1:] == ["  GPU0   -      NET", "  GPU11  ?      -"]
