"""Starts the scripts in `hangs/` as real processes and ends them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HANGS = Path(__file__).parent / "hangs"
PY_SPY = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or "py-spy"


def free_port() -> int:
    """A TCP port below the ephemeral range, where no outgoing connection lands, that was free a moment ago."""
    for port in random.sample(range(20000, 32000), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port between 20000 and 32000")


@contextmanager
def hanging(
    script: str, *arguments: str, log: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The script as a process in a session of its own, killed with its children at the end."""
    output = open(log, "wb") if log else subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, str(HANGS / script), *arguments],
        env=os.environ | {"MASTER_PORT": str(free_port())} | variables,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)
        if log:
            output.close()


def without_paths(text: str) -> str:
    """A text without the places of this tree and this interpreter, which may well be called ddp-doctor themselves."""
    for place in (sys.prefix, str(HANGS.parents[2])):
        text = text.replace(place, "")
    return text


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a session, with all of that session, and wait for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def wait_for_stack(pid: int, function: str, threads: int, seconds: float = 60) -> None:
    """Return once that many threads of the process stand in a function; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        dump = subprocess.run([PY_SPY, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
        if dump.stdout.count(f"{function} (") >= threads:
            return
        time.sleep(0.2)
    raise AssertionError(f"PID {pid} did not reach {function} in {threads} threads within {seconds} s:\n{dump.stdout}")


def doctor(*arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """Run `ddp-doctor ... --format json`; its exit code and report."""
    done = subprocess.run(
        [sys.executable, "-m", "ddp_doctor", *arguments, "--format", "json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)
