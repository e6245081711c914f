"""What benchmarks/accuracy.py counts, on rows whose worth is plain, and what it writes."""

from __future__ import annotations

import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "benchmarks"), str(Path(__file__).parent / "live")]
import accuracy
import accuracy_page
import in_place
from faults import CONTROLS, FAULTS
from scoring import Row, confused, confusion, figures, row, surest
from stock_pytorch import names

ROWS = [
    Row(mode="attach", name="rank-1-missing", expected=("DDP101",), ranks=(1,),
        said="DDP101", confidence="certain", told=(1,), seconds=1.0),
    Row(mode="attach", name="mute-server", expected=("DDP209",), ranks=(1,),
        said="DDP209", confidence="likely", told=(0,), seconds=2.0),
    Row(mode="attach", name="gil-held", expected=("DDP506",), candidates=("DDP505",), seconds=9.0),
    Row(mode="attach", name="pipe", expected=("DDP505", "DDP506"), said="DDP601", confidence="certain", seconds=4.0),
    Row(mode="attach", name="training", expected=(), warnings=("DDP604",)),
    Row(mode="attach", name="idle", expected=(), errors=("DDP101",), certain_errors=("DDP101",)),
    Row(mode="attach", name="two-locks", expected=("DDP506",), failed="TimeoutError"),
    Row(mode="stock", name="pipe", expected=("DDP505",), line="nothing | of use `here`"),
]  # fmt: skip


def test_figures() -> None:
    told = figures(each for each in ROWS if each.mode == "attach")
    assert {name: told[name] for name in ("faults", "exact", "right rank", "abstained", "wrong claims")} == {
        "faults": 4, "exact": 0.5, "right rank": 0.5, "abstained": 0.25, "wrong claims": 0.25,
    }  # fmt: skip
    assert (told["family"], told["wrong certain"], told["median s"], told["p95 s"]) == (0.75, 2, 3.0, 9.0)
    assert (told["healthy"], told["healthy errors"], told["healthy warnings"], told["not started"]) == (2, 1, 1, 1)


def test_what_was_confused() -> None:
    assert confused(ROWS[:4]) == {"DDP506 -> DDP505": 1, "DDP505|DDP506 -> DDP601": 1}
    assert confusion(ROWS[:4])["host software"] == {"host software": 1, "program": 1}


def test_of_several_reports_a_wrong_certain_one_counts() -> None:
    assert surest([ROWS[0], ROWS[3]]) is ROWS[3] and surest([ROWS[2], ROWS[0]]) is ROWS[0]


def test_a_row_of_a_report() -> None:
    finding: dict[str, Any] = {"id": "DDP101", "severity": "error", "confidence": "likely", "ranks": [1]}
    verdict = {"finding": "DDP101", "confidence": "likely", "candidates": []}
    made = row("attach", "x", ("DDP101",), (1,), {"verdict": verdict, "findings": [finding]}, 1.0)
    assert made.exact and made.ranks_right and made.claims and not made.wrong and made.errors == ("DDP101",)


def test_missed_bars_are_told() -> None:
    told = "\n".join(accuracy.missed(ROWS))
    for words in ("attach: exact 0.5", "wrong and certain 2", "errors in healthy settings 1"):
        assert words in told
    assert accuracy.missed(ROWS[:1]) == []


def test_the_page_and_the_plot(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(accuracy_page, "PAGE", tmp_path / "accuracy.md")
    monkeypatch.setattr(accuracy_page, "PLOT", tmp_path / "accuracy.svg")
    accuracy_page.write(ROWS, {"machine": "2 CPUs"}, [])
    text = (tmp_path / "accuracy.md").read_text()
    assert "2 CPUs" in text and "Every bar is met" in text and "| nothing" not in text
    assert "| pipe | stock | no | `nothing / of use here` |" in text
    assert "| rank-1-missing | DDP101 | DDP101 certain |" in text
    plot = xml.etree.ElementTree.parse(tmp_path / "accuracy.svg").getroot()
    assert len(plot.findall("{http://www.w3.org/2000/svg}circle")) == 5


def test_what_is_seen_before_init_is_a_fault_that_there_is() -> None:
    known = {fault.name for fault in (*FAULTS, *CONTROLS)}
    listed = {*in_place.SEEN, *in_place.ON_THE_WAY, *in_place.CALM, *in_place.DIFFERENT, *in_place.NOT_SEEN}
    assert listed <= known and not set(in_place.SEEN) & set(in_place.NOT_SEEN)
    assert set(in_place.DIFFERENT) <= {*in_place.SEEN, *in_place.ON_THE_WAY}


def test_stock_names_a_rank_only_if_it_is_the_right_one() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "rank-1-missing")
    assert names(fault, "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 12000 ms")
    assert not names(fault, "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 12000 ms")
    assert names(fault, "1/2 clients joined.")
