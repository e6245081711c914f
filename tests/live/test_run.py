"""`ddp-doctor run` as a person types it, in settings that are healthy and in ones that are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examining import libnccl, needs_root
from run_settings import CUDA_PYTHON, FAULTY, HEALTHY, Setting, by_hand, called, docker_and_eth0, serious

pytestmark = pytest.mark.live


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Setting], tuple[int, dict[str, Any]]]:
    """Calls `ddp-doctor run` in a setting."""

    def call(setting: Setting) -> tuple[int, dict[str, Any]]:
        if setting.root:
            needs_root()
        return called(setting, tmp_path)

    return call


def marked(settings: list[Setting]) -> list[Any]:
    return [pytest.param(each, id=each.title, marks=() if each.quick else pytest.mark.slow) for each in settings]


@pytest.mark.parametrize("setting", marked(HEALTHY))
def test_healthy(setting: Setting, run: Callable[[Setting], tuple[int, dict[str, Any]]]) -> None:
    code, report = run(setting)
    assert serious(report) == []
    assert (code, report["verdict"]["status"]) == (0, "healthy")


@pytest.mark.parametrize("setting", marked(FAULTY))
def test_named(setting: Setting, run: Callable[[Setting], tuple[int, dict[str, Any]]]) -> None:
    code, report = run(setting)
    assert report["verdict"]["finding"] == setting.expect[0]
    assert serious(report) == list(setting.expect)
    assert setting.code is None or code == setting.code


@pytest.mark.slow
@pytest.mark.parametrize("value", ["eth99", " eth0", "^lo"])
def test_nccls_interface(value: str, run: Callable[[Setting], tuple[int, dict[str, Any]]]) -> None:
    if not CUDA_PYTHON:
        pytest.skip("needs an interpreter whose torch has a libnccl: $DDP_DOCTOR_TEST_CUDA_PYTHON")
    libnccl()
    code, report = run(
        Setting(
            title=value,
            environ=by_hand(0, 2, "10.0.0.5") | {"NCCL_SOCKET_IFNAME": value},
            arguments=("--python", CUDA_PYTHON),
            inside=docker_and_eth0,
            root=True,
        )
    )
    assert report["verdict"]["finding"] == "DDP301"
    assert code == (0 if value == "^lo" else 1)  # no interface at all is an error, a poor one a warning


def test_torch_is_missing(tmp_path: Path, run: Callable[[Setting], tuple[int, dict[str, Any]]]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    code, report = run(Setting(title="", arguments=("--python", bare)))
    assert (code, report["verdict"]["finding"]) == (1, "DDP507")


def test_torch_crashes(tmp_path: Path, run: Callable[[Setting], tuple[int, dict[str, Any]]]) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    code, report = run(Setting(title="", arguments=("--python", str(wrapper))))
    assert (code, report["verdict"]["finding"]) == (1, "DDP507")
    assert "SIGSEGV" in report["verdict"]["summary"]


def test_a_jobs_files_stay_as_they_are(tmp_path: Path, run: Callable[[Setting], tuple[int, dict[str, Any]]]) -> None:
    names = ("NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "TORCHELASTIC_ERROR_FILE", "TORCH_FR_DUMP_TEMP_FILE")
    files = {name: tmp_path / name for name in names}
    for name, path in files.items():
        path.write_text(f"the job's own {name}\n")
    _, report = run(Setting(title="", environ={name: str(path) for name, path in files.items()}))
    assert {name: path.read_text() for name, path in files.items()} == {
        name: f"the job's own {name}\n" for name in names
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert "DDP508" in [each["id"] for each in report["outcomes"] if each["status"] == "clear"]
