"""The choice of the examined interpreter, made by real interpreters."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ddp_doctor.probes.interpreter import Choice, NoInterpreter, choose_python

pytest.importorskip("torch")
pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
CHOOSE = """
import os, msgspec
from ddp_doctor.probes.interpreter import choose_python
print(msgspec.json.encode(choose_python(os.environ)).decode())
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the doctor's own needs and no torch, as pipx and uvx make them."""
    folder = tmp_path_factory.mktemp("pipx")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    assert msgspec.__file__ is not None
    (site / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (site / "ddp_doctor").symlink_to(ROOT / "ddp_doctor")
    return folder / "bin/python"


def choose_in(python: Path, **environ: str) -> Choice:
    """What a doctor that runs in `python` chooses, with nothing but these variables."""
    done = subprocess.run([python, "-c", CHOOSE], env=environ, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout, type=Choice)


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_current_interpreter_is_taken_where_it_has_torch() -> None:
    started = time.monotonic()
    choice = choose_python({"VIRTUAL_ENV": "/elsewhere"})
    assert (choice.python, choice.passed_over) == (sys.executable, ())
    assert time.monotonic() - started < 0.1
    assert importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX", "PATH"])
def test_another_one_that_has_torch_is_found(bare: Path, tmp_path: Path, variable: str) -> None:
    there = tmp_path / "env"
    script(there / "bin/python", f'exec {sys.executable} "$@"')
    value = f"{there}/bin:/usr/bin:/bin" if variable == "PATH" else str(there)
    choice = choose_in(bare, **({"PATH": "/usr/bin:/bin"} | {variable: value}))
    assert choice.python == sys.executable
    assert choice.why == ("on PATH" if variable == "PATH" else f"${variable}")
    assert choice.passed_over[0] == f"{bare}, which runs ddp-doctor, has no torch"


def test_none_has_torch(bare: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin/python", f'exec {bare} "$@"')
    choice = choose_in(bare, PATH=f"{tmp_path}/bin", VIRTUAL_ENV=str(tmp_path / "gone"))
    assert choice.python == str(bare)
    assert choice.why == "it runs ddp-doctor; none of those tried has torch"
    assert choice.passed_over[1:] == (
        f"{tmp_path}/gone/bin/python ($VIRTUAL_ENV): No such file or directory",
        "python (on PATH): has no torch",
        "python3 (on PATH): No such file or directory",
    )


def test_candidates_that_hang_or_fail_are_passed_over_and_named(bare: Path, tmp_path: Path) -> None:
    script(tmp_path / "hangs/bin/python", "exec sleep 1000")
    script(tmp_path / "fails/bin/python", "echo no licence; exit 7")
    script(tmp_path / "bin/python", f'exec {sys.executable} "$@"')
    started = time.monotonic()
    choice = choose_in(
        bare,
        VIRTUAL_ENV=str(tmp_path / "hangs"),
        CONDA_PREFIX=str(tmp_path / "fails"),
        PATH=f"{tmp_path}/bin:/usr/bin:/bin",
    )
    assert time.monotonic() - started < 5
    assert choice.python == sys.executable
    assert "hangs/bin/python ($VIRTUAL_ENV): no answer in 2.0 s" in choice.passed_over[1]
    assert (
        "fails/bin/python ($CONDA_PREFIX): is no Python interpreter that works: exit code 7, 'no licence'"
        in (choice.passed_over[2])
    )


def test_the_option_wins_even_without_torch(bare: Path) -> None:
    choice = choose_python(os.environ, str(bare))
    assert (choice.python, choice.why) == (str(bare), "--python")


def test_the_option_may_be_a_name_on_path(bare: Path) -> None:
    choice = choose_python({"PATH": str(bare.parent)}, "python")
    assert choice.python == str(bare)


def test_an_option_that_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("text", encoding="utf-8")
    for option, words in [
        ("/nothing/python", "No such file or directory"),
        (str(plain), "Permission denied"),
        (str(tmp_path), "Permission denied"),
        ("/bin/true", "is no Python interpreter that works: exit code 0"),
    ]:
        with pytest.raises(NoInterpreter, match=f"--python {option}: {words}"):
            choose_python(os.environ, option)


def test_an_option_that_hangs_is_examined_all_the_same(tmp_path: Path) -> None:
    hanging = script(tmp_path / "python", "exec sleep 1000")
    choice = choose_python(os.environ, hanging)
    assert choice.python == hanging
    assert choice.passed_over == ("no answer in 6.0 s",)
