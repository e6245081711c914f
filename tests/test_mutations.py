"""Evidence that is damaged leads to `unknown`, and never to a wrong `certain`: a part of benchmarks/mutations.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import mutations
from mutations import Specimen

FACTS = mutations.of_facts(mutations.KEPT_FACTS)
LOGS = mutations.of_logs()
EACH = 9
"""Of the logs, every ninth; the benchmark takes them all."""


@pytest.mark.parametrize("specimen", FACTS, ids=lambda specimen: specimen.name)
def test_facts_lead_to_the_right_cause_in_any_order(specimen: Specimen) -> None:
    told = mutations.outcome(specimen, "none", 0)
    assert told.said in specimen.right if specimen.right else not told.wrong
    for seed in range(3):
        again = mutations.shaken(specimen, "reordered", seed)
        assert mutations.outcome(again, "reordered", seed)[3:] == told[3:]


@pytest.mark.parametrize("specimen", [*FACTS, *LOGS[::EACH]], ids=lambda specimen: specimen.name)
def test_damage_makes_nothing_certain_that_is_wrong(specimen: Specimen) -> None:
    found = mutations.outcomes([specimen], [1], among=[*FACTS, *LOGS])
    assert [each for each in found if each.wrong_and_certain] == []
