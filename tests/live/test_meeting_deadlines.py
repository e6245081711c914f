"""Ranks that are missing, stopped or killed at random moments: all others end in time, and the missing are named."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "meeting_deadlines.py"


@pytest.mark.parametrize("ranks", [4, 5, 6])
def test_at_random_moments(tmp_path: Path, ranks: int) -> None:
    specification = importlib.util.spec_from_file_location("meeting_deadlines", BENCHMARK)
    assert specification is not None and specification.loader is not None
    benchmark = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(benchmark)
    seed = random.randrange(10**6)
    wrong = benchmark.meeting(random.Random(seed), ranks, 6.0, 20.0, tmp_path)
    assert wrong == "", f"seed {seed}, {ranks} ranks: {wrong}"
