"""A rank that torchrun starts again finds what it ended with, also where the agent ended it while it was looking."""

from __future__ import annotations

from pathlib import Path

import pytest
from reports import report

from ddp_doctor.cli import elastic
from ddp_doctor.cli.elastic import Attempt


def attempt(base: Path, number: int, rank: int, most: int = 2) -> Attempt:
    """One start of a rank, with the variables that torchrun gives it."""
    file = base / f"attempt_{number}" / str(rank) / "error.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    return Attempt(
        {
            "TORCHELASTIC_ERROR_FILE": str(file),
            "TORCHELASTIC_RESTART_COUNT": str(number),
            "TORCHELASTIC_MAX_RESTARTS": str(most),
        }
    )


def files(base: Path) -> list[str]:
    return sorted(str(path.relative_to(base)) for path in base.rglob("error.json"))


def test_each_attempt_ends_as_the_first_and_the_last_leaves_no_file(tmp_path: Path) -> None:
    attempt(tmp_path, 0, 0).tell(report(), 1)
    for number in (1, 2):
        told = attempt(tmp_path, number, 0).told_before()
        assert told is not None and told.code == 1
    assert files(tmp_path) == []


def test_a_rank_that_the_agent_ended_before_it_had_read_finds_it_an_attempt_later(tmp_path: Path) -> None:
    attempt(tmp_path, 0, 1).tell(report(), 1)
    told = attempt(tmp_path, 2, 1).told_before()
    assert told is not None and told.code == 1
    assert files(tmp_path) == []


def test_nobody_ends_before_the_others_have_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(tmp_path, 0, 0).tell(report(), 1)
    attempt(tmp_path, 0, 1).tell(report(), 1)
    seen: list[list[str]] = []

    def later(seconds: float) -> None:
        seen.append(files(tmp_path))
        if len(seen) == 1:
            attempt(tmp_path, 1, 1).told_before()

    monkeypatch.setattr(elastic.time, "sleep", later)
    attempt(tmp_path, 1, 0).told_before()
    assert seen[0] == ["attempt_0/1/error.json", "attempt_1/0/error.json"]
    assert files(tmp_path) == ["attempt_1/0/error.json", "attempt_1/1/error.json"]


def test_a_first_attempt_and_a_file_of_somebody_else_say_nothing(tmp_path: Path) -> None:
    assert attempt(tmp_path, 0, 0).told_before() is None
    (tmp_path / "attempt_0" / "0" / "error.json").write_text('{"message": {"message": "RuntimeError", "errorCode": 1}}')
    assert attempt(tmp_path, 1, 0).told_before() is None
    assert Attempt({}).told_before() is None
