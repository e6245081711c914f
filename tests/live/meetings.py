"""Starts ranks that call preflight(), each a real process, and gathers what each of them was told."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs import free_port

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "hangs" / "preflight_rank.py"
OWN_NAME = Path("/proc/self/comm")
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG")


class Rank:
    """How one rank is started: its variables, and the options of the script."""

    def __init__(self, variables: dict[str, str], *options: str) -> None:
        self.variables = variables
        self.options = options


def world(size: int, *, launched: bool = True, address: str = "127.0.0.1", **more: str) -> list[Rank]:
    """The ranks of a healthy job; `launched` as torchrun would, else as somebody does by hand."""
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(free_port())} | more
    if launched:
        common |= {"TORCHELASTIC_RUN_ID": f"run-{random.randrange(10**9)}", "LOCAL_WORLD_SIZE": str(size)}
    local = [{"RANK": str(rank)} | ({"LOCAL_RANK": str(rank)} if launched else {}) for rank in range(size)]
    return [Rank(common | each) for each in local]


def change(ranks: Sequence[Rank], number: int, *options: str, **variables: str) -> list[Rank]:
    """The same job with one rank started differently."""
    changed = Rank(ranks[number].variables | variables, *ranks[number].options, *options)
    return [changed if place == number else rank for place, rank in enumerate(ranks)]


AGENT = """
import os, subprocess, sys
open("/proc/self/comm", "w").write("pt_elastic")
sys.exit(subprocess.call(sys.argv[1:]))
"""
"""A launcher of its own for one rank."""


def meet(
    ranks: Sequence[Rank], timeout: float, *, patience: float = 60.0, agents: bool = False
) -> list[dict[str, Any] | None]:
    """What each rank was told, in order; None for one that said nothing, because it died or was stopped.

    With `agents` each rank has a launcher of its own, as if it were on a host of its own.
    """
    environ = {name: os.environ[name] for name in KEPT if name in os.environ}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "checks")))
    told: list[dict[str, Any] | None] = []
    own_name = OWN_NAME.read_text()
    # what torchrun's agent is called, by which the doctor knows that the ranks' variables are no leftovers
    OWN_NAME.write_text("pt_elastic\n" if "TORCHELASTIC_RUN_ID" in ranks[0].variables else own_name)
    processes = [
        subprocess.Popen(
            [*([sys.executable, "-c", AGENT] if agents else []), sys.executable, str(SCRIPT), str(timeout), *rank.options],
            env=environ | rank.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in ranks
    ]  # fmt: skip
    give_up = time.monotonic() + timeout + patience
    try:
        for rank, process in zip(ranks, processes, strict=True):
            if any(option.startswith("stop=") for option in rank.options):
                told.append(None)
                continue
            output, errors = process.communicate(timeout=max(1.0, give_up - time.monotonic()))
            line = next((line for line in output.splitlines() if line.startswith("{")), "")
            told.append(json.loads(line) | {"stderr": errors} if line else None)
            if not line and not any(option.startswith("die=") for option in rank.options):
                raise AssertionError(f"rank {rank.variables.get('RANK')} ended without a report:\n{errors}")
    finally:
        OWN_NAME.write_text(own_name)
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    return told
