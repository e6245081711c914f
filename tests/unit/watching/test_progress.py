"""Whether a process gets on, of real ones."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ddp_doctor.watching.progress import done, got_on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
WAYS = {
    "sleeps": ("time.sleep(60)", False),
    "polls": ("while True: os.path.exists('/nowhere'); time.sleep(0.05)", False),
    "prints": ("while True: print('on', flush=True); time.sleep(0.1)", True),
    "has a child that works": ("subprocess.run([sys.executable, '-c', 'while True: pass'])", True),
    "has a child that sleeps": ("subprocess.run(['sleep', '60'])", False),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_gets_on(way: str) -> None:
    code, gets_on = WAYS[way]
    program = f"import os, subprocess, sys, time; print('begun', flush=True); {code}"
    if code.startswith("while"):
        program = program.replace("; while", "\nwhile")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        time.sleep(0.5)
        before = done([process.pid])
        time.sleep(1)
        now = done([process.pid])
        below = list(now[process.pid].used)
        try:
            assert got_on(before[process.pid], now[process.pid]) is gets_on
        finally:
            process.kill()
            subprocess.run(["kill", "-9", *map(str, below)], check=False) if below else None


def test_a_rank_below_another_does_not_work_for_it() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True)\\nwhile True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        (child,) = done([process.pid])[process.pid].used
        try:
            assert done([process.pid], [process.pid, child])[process.pid].used == {}
        finally:
            process.kill()
            subprocess.run(["kill", "-9", str(child)], check=False)


def test_who_is_gone_does_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    gone = done([process.pid])[process.pid]
    assert (gone.moved, gone.used) == (0, {}) and not got_on(gone, gone)
