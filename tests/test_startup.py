"""Importing the package costs next to nothing: it is imported in training scripts, on every rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import ddp_doctor

ROOT = Path(ddp_doctor.__file__).parents[1]
COSTLY = {
    "dataclasses",
    "inspect",
    "importlib.metadata",
    "importlib.resources",
    "asyncio",
    "socket",
    "subprocess",
    "json",
}


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has in sys.modules after the statement and had not before it."""
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "new = sorted(set(sys.modules) - before)\n"
        "import json\n"
        "print(json.dumps(new))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(ran.stdout))


def test_import_takes_a_few_modules_of_the_standard_library() -> None:
    new = modules_after("import ddp_doctor")
    ours = {name for name in new if name.partition(".")[0] == "ddp_doctor"}
    assert ours == {"ddp_doctor"}
    assert {name for name in new - ours if name.partition(".")[0] not in sys.stdlib_module_names} == set()
    assert new & COSTLY == set()
    assert len(new) <= len(modules_after("import typing, __future__")) + 3


def test_the_door_to_checks_does_not_look_for_plugins() -> None:
    new = modules_after("from ddp_doctor import Check, Pack, Probe")
    assert new & {"importlib.metadata", "typer", "rich", "torch", "pynvml", "psutil", "ddp_doctor_checks"} == set()


@pytest.mark.parametrize("name", ddp_doctor.__all__)
def test_public_names_are_there_when_asked_for(name: str) -> None:
    value = getattr(ddp_doctor, name)
    assert value is getattr(ddp_doctor, name)
    assert name == "__version__" or value.__module__.startswith("ddp_doctor")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'prefligth'"):
        ddp_doctor.prefligth  # noqa: B018
    assert not hasattr(ddp_doctor, "__wrapped__")


@pytest.mark.parametrize("imported", ["ddp_doctor.cli", "typer", "ddp_doctor.model"])
def test_an_interrupt_while_it_starts_leaves_no_traceback(imported: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "ddp_doctor", "checks"], cwd=ROOT, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == imported:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert line.endswith(f"{imported}\n") and "Traceback" not in rest
    assert process.returncode == 130
