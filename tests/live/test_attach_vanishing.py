"""Processes that end, become another program or get a used PID while they are looked at: no crash, nobody mistaken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, Part, rank, running
from jobs import doctor

from ddp_doctor.collect import collect
from ddp_doctor.facts.job import Process
from ddp_doctor.facts.process import Stack
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts
from ddp_doctor.probes.job import job_probes
from ddp_doctor.workers import processes

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
STORM = Part("storm.py", (), {"MASTER_PORT": "{port}"}, contained=True)


@pytest.mark.root
@pytest.mark.parametrize("rounds", [pytest.param(3, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.slow)])
def test_two_ranks_are_described_right_in_a_storm_of_others(rounds: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for namespaces")
    with running(Fault("storm", (), None, (STORM,), "", marks=3, settle=3.0)) as (storm,):
        before = pids_made()
        for _ in range(rounds):
            code, report = doctor("attach", str(storm.pid))
            assert code in (0, 1, 4)
            assert [each for each in report["outcomes"] if each["status"] == "crashed"] == []
            assert [each for each in report["probes"] if each["status"] == "crashed"] == []
            mine = {row["rank"]: row for row in report["ranks"] if row["rank"] in (0, 1)}
            assert set(mine) == {0, 1}, report["ranks"]
            assert all(r["call"] == "init_process_group" and "meet.py" in r["where"] for r in mine.values()), mine
            strangers = [row for row in report["ranks"] if row["rank"] not in (0, 1)]
            assert all("meet.py" not in (row["where"] or "") for row in strangers), strangers
        assert pids_made() > before + 200 * rounds / 3


def pids_made() -> int:
    """How many processes this machine has started."""
    line = next(each for each in Path("/proc/stat").read_text().splitlines() if each.startswith("processes "))
    return int(line.split()[1])


def look(pid: int, between: object) -> tuple[Facts, Process]:
    """Processes, then what `between` does, then stacks."""
    host = Host(30)
    of_processes, of_stacks, *_ = job_probes([pid], every=False, stacks=True, native=False)
    known = collect(host, [of_processes], Facts()).facts
    process = next(each for each in known[Process] if each.pid == pid)
    assert callable(between)
    between()
    return collect(host, [of_stacks], known).facts, process


def sleeper(then: str = "None") -> subprocess.Popen[bytes]:
    """A Python process that calls itself a rank; at SIGUSR1 it does something else."""
    code = (
        f"import os, signal, time; signal.signal(signal.SIGUSR1, lambda *_: {then}); print(1, flush=True)\n"
        "while True: time.sleep(60)"
    )
    environ = os.environ | {"RANK": "0", "WORLD_SIZE": "2"}
    process = subprocess.Popen([sys.executable, "-I", "-c", code], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"1\n"
    return process


def reason(facts: Facts) -> str:
    absent: Absent
    (absent,) = (each for each in facts.absents if each.kind == Stack.kind())
    return absent.reason


def test_a_process_that_ends_between_two_looks_has_no_stack() -> None:
    process = sleeper()
    facts, _ = look(process.pid, lambda: (process.kill(), process.wait()))
    assert facts[Stack] == ()
    assert reason(facts) == f"PID {process.pid} ended meanwhile"


def test_a_process_that_became_another_program_is_not_described_by_its_stack() -> None:
    again = f"os.execv({sys.executable!r}, ['python', '-c', 'import time; print(2, flush=True); time.sleep(60)'])"
    process = sleeper(again)

    def become() -> None:
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None and process.stdout.readline() == b"2\n"

    try:
        facts, seen = look(process.pid, become)
        assert facts[Stack] == ()
        assert reason(facts) == f"PID {process.pid} ended meanwhile, or runs another program by now"
        assert "RANK" in seen.variables
    finally:
        process.kill()
        process.wait()


def test_a_program_that_is_replaced_while_it_is_read_is_read_anew() -> None:
    """Between the kernel's numbers and the memory of one PID lies time for another program."""
    process = sleeper("os.execv('/bin/sleep', ['sleep', '60'])")
    said: list[dict[str, Any]] = []
    try:
        now = processes.uptime()
        found = processes.basics(process.pid, now)
        view = processes.View({"variables": "RANK$"}, said.append, {process.pid: found}, now)
        view.cheap(found)
        assert view.dear(found)
        process.send_signal(signal.SIGUSR1)
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        assert not view.dear(found)
        fresh = processes.basics(process.pid, now)
        view.cheap(fresh)
        assert view.dear(fresh)
        assert said[-1]["arguments"] == ["sleep", "60"]
    finally:
        process.kill()
        process.wait()
    assert not view.dear(fresh)


def test_a_rank_that_ends_while_the_whole_job_is_looked_at() -> None:
    with running(Fault("leaving", (), None, (rank(0, 3), rank(1, 3)), "", settle=1.0)) as (first, second):
        attaching = subprocess.Popen(
            [sys.executable, "-m", "ddp_doctor", "attach", str(first.pid)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        time.sleep(0.4)
        second.kill()
        second.wait()
        shown, _ = attaching.communicate(timeout=60)
    assert attaching.returncode in (1, 4)
    assert "Traceback" not in shown and "crashed" not in shown
