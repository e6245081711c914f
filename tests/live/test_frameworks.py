"""`watch` where frameworks create the group: the recipes of docs/frameworks.md with the frameworks themselves."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from jobs import HANGS, end, free_port, without_paths

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
WATCH = (sys.executable, "-m", "ddp_doctor", "watch", "--after", "5", "--kill", "--")
SECONDS = 120
RECIPES = {
    "lightning": ((sys.executable,), "lightning_fit.py"),
    "lightning-torchrun": (TORCHRUN, "lightning_fit.py"),
    "accelerate": (TORCHRUN, "accelerate_train.py"),
    "transformers": (TORCHRUN, "transformers_train.py"),
}


def needs(framework: str) -> None:
    """Skip where a framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: pip install -e '.[test,frameworks]'")


@contextmanager
def started(*command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own without launch variables but these, ended with all that it started."""
    launch = re.compile(r"RANK$|WORLD_SIZE$|MASTER_|LOCAL_|SLURM_|ACCELERATE_|PL_|DDP_DOCTOR")
    environ = {name: value for name, value in os.environ.items() if not launch.search(name)}
    process = subprocess.Popen(
        command,
        env=environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "AFTER": "60"} | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        end(process)


def output(process: subprocess.Popen[str], last: str = r"\d+ errors?( and .*)? found") -> str:
    """What it prints up to the end of a report."""
    lines = []
    end = time.monotonic() + SECONDS
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if re.search(last, line) or time.monotonic() > end:
            break
    return "".join(lines)


def trains(*command: str, **variables: str) -> str:
    """The output of a job of two ranks that has to get through; nothing of the doctor is in it."""
    with started(*command, **variables) as process:
        out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, out
    assert "rank 0 of 2 trained" in out
    assert "ddp-doctor" not in without_paths(out)
    return out


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_healthy_job_trains_in_silence(recipe: str) -> None:
    needs(recipe.partition("-")[0])
    launcher, script = RECIPES[recipe]
    assert "rank 1 of 2 trained" in trains(*launcher, str(HANGS / script))


@pytest.mark.parametrize("recipe", ["lightning", "accelerate", "transformers"])
def test_a_rank_that_never_starts_is_named(recipe: str) -> None:
    needs(recipe)
    one_of_two = {
        "RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    script = HANGS / RECIPES[recipe][1]
    with started(sys.executable, str(script), AFTER="4", **one_of_two) as rank:
        text = output(rank)
    assert "rank 0 has not finished initialisation 4 s after it began" in text
    assert re.search(r"error\[DDP101\]: rank 1 of world size 2 is not running", text), text
    assert f"{script.name}:" in text


def test_a_launcher_in_a_thread_that_its_copies_reach_trains_in_silence() -> None:
    needs("lightning")
    trains(*WATCH, sys.executable, str(HANGS / "lightning_fit.py"), HOW="every-thread")


def test_ranks_of_a_launcher_like_deepspeeds_are_named() -> None:
    port = str(free_port())
    ranks = [
        {
            "argv": [sys.executable, "-u", str(HANGS / "in_a_block.py"), f"--local_rank={rank}"],
            "environ": os.environ
            | {"PYTHONPATH": os.pathsep.join(sys.path), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3",
               "LOCAL_SIZE": "3", "CROSS_RANK": "0", "CROSS_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
               "HOW": "init", "DDP_DOCTOR": "off"},
            "delay": 0,
            "output": os.devnull,
        }
        for rank in range(2)
    ]  # fmt: skip
    with started(*WATCH, sys.executable, str(HANGS / "start_all.py"), json.dumps(ranks)) as process:
        text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 124
    assert re.search(r"error\[DDP101\]: rank 2 of world size 3 is not running", text), text


def thread_is_named(text: str) -> None:
    """The launcher in a thread, and the copy of the script that never reaches training."""
    assert re.search(r"error\[DDP119\]: the script that was run again for rank 1 never reaches training", text), text
    assert re.search(r"warning\[DDP103\]: PID \d+ started 1 further rank from thread 'trainer'", text), text
    assert text.index("DDP119") < text.index("DDP103")


def test_a_lightning_launcher_in_a_thread_is_named_by_the_block() -> None:
    needs("lightning")
    # a relative path, as people type it: Lightning's copies have the whole one
    command = f"cd {HANGS} && exec {sys.executable} lightning_fit.py"
    with started("sh", "-c", command, HOW="thread", AFTER="6") as process:
        thread_is_named(output(process))


def test_a_lightning_launcher_in_a_thread_is_named_around_an_unchanged_script() -> None:
    needs("lightning")
    with started(*WATCH, sys.executable, str(HANGS / "lightning_fit.py"), HOW="thread", AFTER="600") as process:
        text, _ = process.communicate(timeout=SECONDS)
    thread_is_named(text)
    assert process.returncode == 124


@pytest.mark.parametrize(
    ("launcher", "variables"),
    [(TORCHRUN, {}), ((sys.executable,), {"HOW": "thread", "STRATEGY": "ddp_spawn"})],
    ids=["torchrun", "ddp_spawn"],
)
def test_the_thread_case_trains_as_its_fixes_say(launcher: tuple[str, ...], variables: dict[str, str]) -> None:
    needs("lightning")
    trains(*launcher, str(HANGS / "lightning_fit.py"), **variables)
