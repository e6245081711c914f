"""attach gives way to the job where a CPU is idle, and does not starve where none is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import doctor

from ddp_doctor import courtesy
from ddp_doctor.host import Host

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="schedules as Linux does")]
POLICY = "import os; print(os.sched_getscheduler(0))"
GIVE_WAY = "from ddp_doctor.courtesy import give_way"
GIVE_WAY_ANYHOW = f"from ddp_doctor import courtesy; courtesy.LEAST_IDLE_CPUS = -1; {GIVE_WAY}"


@contextmanager
def spinning(number: int) -> Iterator[None]:
    """That many processes that never let go of a CPU."""
    spinners = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(number)]
    try:
        time.sleep(0.2)
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def tried(code: str) -> list[str]:
    """What a Python of its own prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def idle_cpus() -> float:
    """How many CPUs nobody uses now."""
    before, began = courtesy._idle_seconds(), time.monotonic()
    time.sleep(0.2)
    after = courtesy._idle_seconds()
    assert before is not None and after is not None
    return (after - before) / (time.monotonic() - began)


def need_to_leave() -> None:
    if not courtesy._may_leave():
        pytest.skip("CAP_SYS_NICE is missing, so nothing enters the idle class")


def test_where_a_cpu_is_idle_it_comes_last_with_all_it_starts() -> None:
    need_to_leave()
    if idle_cpus() < 1:
        pytest.skip("no CPU of this machine is idle now")
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {POLICY!r}])"
    assert tried(f"{GIVE_WAY}; print(give_way(), flush=True); {child}") == ["True", str(os.SCHED_IDLE)]


def test_it_ends_after_a_second_for_all_it_started() -> None:
    need_to_leave()
    child = f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1.8); {POLICY}'])"
    code = f"import subprocess, sys; {GIVE_WAY_ANYHOW}; print(give_way(), flush=True); {child}.wait(); {POLICY}"
    assert tried(code) == ["True", str(os.SCHED_OTHER), str(os.SCHED_OTHER)]


def test_nothing_of_it_outlives_the_doctor_or_holds_its_output() -> None:
    need_to_leave()
    said = tried(f"{GIVE_WAY_ANYHOW}; import time; print(give_way(), time.monotonic(), flush=True)")
    assert said[0] == "True" and time.monotonic() - float(said[1]) < courtesy.SECONDS_OF_WAY


def test_where_every_cpu_is_full_it_stays_in_the_usual_class() -> None:
    with spinning(2 * len(os.sched_getaffinity(0))):
        assert tried(f"{GIVE_WAY}; print(give_way()); {POLICY}") == ["False", str(os.SCHED_OTHER)]


def test_a_worker_of_a_doctor_that_gives_way_comes_last_as_a_session() -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not group by session")
    code = (
        "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        "from ddp_doctor.host import Host\n"
        "print(Host(20).read('/proc/self/autogroup')['/proc/self/autogroup'])"
    )
    assert tried(code)[-2:] == ["nice", "19"]
    shown = Host(20).read("/proc/self/autogroup")["/proc/self/autogroup"]
    assert shown is not None and shown.split()[-2:] == ["nice", "0"]


def test_attach_does_not_starve_beside_full_cpus() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]) as process:
        try:
            with spinning(len(os.sched_getaffinity(0))):
                code, report = doctor("attach", str(process.pid))
        finally:
            process.kill()
    assert code in (0, 1, 4, 5)
    assert all(probe["status"] != "timeout" for probe in report["probes"])
