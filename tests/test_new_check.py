"""scripts/new_check.py in a copy of the tree: what it drafts, what it refuses, and that a draft passes no review."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ddp_doctor_checks
import pytest

import ddp_doctor

TESTS = Path(__file__).parent
TITLE = "Something else on the network talks to the job's ports"
STRAY = ("stray-cosmos", "DDP388", "--area", "network", "--title", TITLE)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what drafting touches and of the meta-tests."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(ddp_doctor.__file__).parent, tmp_path / "ddp_doctor", ignore=leave)
    pack = Path(ddp_doctor_checks.__file__).parent
    shutil.copytree(pack, tmp_path / "checks" / "ddp_doctor_checks", ignore=leave)
    (tmp_path / "scripts").mkdir()
    shutil.copy(TESTS.parent / "scripts" / "new_check.py", tmp_path / "scripts")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    for name in ("checking.py", "test_pack.py"):
        shutil.copy(TESTS / name, tmp_path / "tests")
    shutil.copy(TESTS.parent / "pyproject.toml", tmp_path)
    return tmp_path


def new_check(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "scripts" / "new_check.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def pytest_in(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--no-header", *arguments]
    paths = os.pathsep.join(str(tree / folder) for folder in (".", "checks", "tests"))
    environ = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=120, check=False)


def files(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_a_draft_is_registered_by_its_place_and_fails_until_written(tree: Path) -> None:
    before = files(tree)
    drafted = new_check(tree, *STRAY)
    assert drafted.returncode == 0, drafted.stderr
    assert files(tree) - before == {
        "checks/ddp_doctor_checks/network/stray_cosmos.py",
        "checks/ddp_doctor_checks/network/stray_cosmos.md",
        "tests/unit/network/test_stray_cosmos.py",
    }
    assert 'DDP308 = "proxy-env"\nDDP388 = "stray-cosmos"\n\n[gpu]' in (
        tree / "checks" / "ddp_doctor_checks" / "ids.toml"
    ).read_text(encoding="utf-8")

    own = pytest_in(tree, "tests/unit/network/test_stray_cosmos.py")
    assert own.returncode == 1
    assert "3 failed" in own.stdout

    meta = pytest_in(tree, "tests/test_pack.py", "-k", "stray-cosmos")
    assert meta.returncode == 1
    told = {line.split("::")[1].split("[")[0] for line in meta.stdout.splitlines() if line.startswith("FAILED")}
    assert {
        "test_nothing_is_left_to_fill_in",
        "test_needs_names_every_kind_the_check_reads",
    } <= told
    assert "test_id_name_and_place_agree" not in told


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not on PATH")
def test_a_draft_is_formatted(tree: Path) -> None:
    new_check(tree, *STRAY)
    drafts = ["checks/ddp_doctor_checks/network/stray_cosmos.py", "tests/unit/network/test_stray_cosmos.py"]
    for command in (["format", "--check"], ["check"]):
        ran = subprocess.run(
            ["ruff", *command, *drafts], cwd=tree, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("stray-cosmos", "DDP103", "--area", "launch", "--title", TITLE), "DDP103 is thread-launch"),
        (("thread-launch", "DDP388", "--area", "network", "--title", TITLE), "thread-launch is DDP103"),
        (("stray-cosmos", "DDP488", "--area", "network", "--title", TITLE), "DDP301 to DDP399"),
        (("stray-cosmos", "DDP38", "--area", "network", "--title", TITLE), "is no id"),
        (("stray_cosmos", "DDP388", "--area", "network", "--title", TITLE), "is no slug"),
        (("../stray", "DDP388", "--area", "network", "--title", TITLE), "is no slug"),
        (("stray-cosmos", "DDP388", "--area", "network", "--title", 'a "b"'), "the title is one line"),
        (("stray-cosmos", "DDP388", "--area", "cosmos", "--title", TITLE), "invalid choice"),
    ],
)
def test_what_does_not_fit_the_tree_is_refused(tree: Path, arguments: tuple[str, ...], words: str) -> None:
    before = files(tree)
    refused = new_check(tree, *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert files(tree) == before


def test_a_check_is_not_drafted_over_another(tree: Path) -> None:
    assert new_check(tree, *STRAY).returncode == 0
    written = tree / "checks" / "ddp_doctor_checks" / "network" / "stray_cosmos.py"
    written.write_text("# written by hand\n", encoding="utf-8")
    again = new_check(tree, *STRAY)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert written.read_text(encoding="utf-8") == "# written by hand\n"
