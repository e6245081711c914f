"""Options that a rank reads without the parser are read as the parser reads them, or left to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer

from ddp_doctor.cli import commands, quick


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], {}),
        (["--wait", "5", "-q"], {"--wait": 5.0, "quiet": True}),
        (["--format=json", "--fail-on", "never"], {"--format": "json", "--fail-on": "never"}),
        (["-f", "json"], {"--format": "json"}),
    ],
)
def test_plain_options(words: list[str], found: dict[str, object]) -> None:
    assert quick.plain_options(words) == found


@pytest.mark.parametrize(
    "words",
    [
        ["--alone"], ["-o", "file"], ["--wait"], ["--wait", "soon"], ["--wait", "0"], ["--format", "xml"], ["--wiat", "5"],
        ["--timeout", "nan"], ["--", "train.py"], ["--select", "DDP1"], ["-f=json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_others_are_left_to_the_parser(words: list[str]) -> None:
    assert quick.plain_options(words) is None


def test_the_words_and_defaults_are_those_of_the_command() -> None:
    command = typer.main.get_command(commands.app)
    options = {name: each for each in command.commands["run"].params for name in each.opts}  # type: ignore[attr-defined]
    assert set(quick.FLAGS) | set(quick.NUMBERS) | set(quick.WORDS) | set(quick.SHORT) <= set(options)
    hints = get_type_hints(commands.run, include_extras=False)
    for name, words in quick.WORDS.items():
        kind = hints[options[name].name]
        assert tuple(each.value for each in (get_args(kind) or (kind,))[0]) == words


def test_what_nobody_launched_is_left_to_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert quick.run_as_rank(["run"], {}) is None
    assert quick.run_as_rank(["attach", "1"], {"RANK": "0", "WORLD_SIZE": "2"}) is None
    assert quick.run_as_rank(["run"], {"RANK": "0", "WORLD_SIZE": "2", "DDP_DOCTOR_WAIT": "3"}) is None
    assert quick.run_as_rank(["run"], {"RANK": "0", "WORLD_SIZE": "2"}) is None  # set by hand: nobody is waited for
    (tmp_path / "ddp-doctor.toml").write_text("wait = 3\n")
    assert quick.run_as_rank(["run", "--wait", "1"], {"RANK": "0", "WORLD_SIZE": "2"}) is None


def test_a_guest_imports_no_parser() -> None:
    code = "import sys, ddp_doctor.cli.quick, ddp_doctor.cli.merged; print(*sys.modules)"
    environ = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert not {"typer", "pydantic", "rich", "ddp_doctor.examine"} & set(done.stdout.split())
