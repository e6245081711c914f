"""Attaching costs a job nothing: no thread of it runs, no port of its communicator is touched, its store goes on."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, rank, running
from jobs import doctor, free_port

from ddp_doctor.workers import ask_store

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
ROOT = Path(__file__).parents[2]
ENVIRON = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "checks")])}
ATTACH = (sys.executable, "-m", "ddp_doctor", "attach")


def patient(how: str) -> Fault:
    """A sleeping rank."""
    return Fault(how, (), None, (rank(0, 2, "patient.py", HOW=how),), "", settle=0.5)


def turns(pid: int) -> dict[int, tuple[str, str]]:
    """Thread -> its state, and how often it was given a CPU."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        found[int(task.name)] = state, (task / "schedstat").read_text().split()[2]
    return found


def test_no_thread_of_250_runs_once_because_of_an_attach() -> None:
    with running(patient("threads")) as (process,):
        before = turns(process.pid)
        _, report = doctor("attach", str(process.pid))
        assert turns(process.pid) == before
        assert len(before) == 251
    assert report["ranks"][0]["where"].startswith("patient.py")


@pytest.mark.parametrize("native", [(), ("--native",)], ids=["plain", "native"])
def test_a_process_with_an_uninterruptible_thread_is_read_as_it_stands(native: tuple[str, ...]) -> None:
    with running(patient("uninterruptible")) as (process,):
        before = turns(process.pid)
        assert "D" in {state for state, _ in before.values()}
        _, report = doctor("attach", *native, str(process.pid))
        assert turns(process.pid) == before
    assert report["ranks"][0]["where"].startswith("patient.py")


def test_a_port_beside_the_store_is_never_connected_to(tmp_path: Path) -> None:
    """Neither that of the process that hosts the store, nor where another rank takes it for the store's."""
    beside, count = free_port(), tmp_path / "count"
    own = rank(0, 2, "listens_beside.py", BESIDE=beside, COUNT=count)
    stray = rank(1, 2, MASTER_PORT=beside, delay=2.0)
    for parts, already in (((own,), None), ((own, stray), "1")):
        with running(Fault("beside", (), None, parts, "", settle=2.0)) as started:
            assert (count.read_text() if count.exists() else None) == already
            _, report = doctor("attach", *(str(process.pid) for process in started))
            time.sleep(0.3)
            assert (count.read_text() if count.exists() else None) == already
        asked = [e["value"] for f in report["findings"] for e in f["evidence"] if e["fact"] == "StoreKeys"]
        assert all(f":{beside}" not in value for value in asked)


def test_a_greeting_that_an_old_store_takes_for_a_key_has_a_length_that_no_machine_can_allocate() -> None:
    for dialect in (ask_store.PingFirst, ask_store.CountFirst):
        length = (dialect.hello + ask_store.check("init/"))[1:9]
        assert int.from_bytes(length, "little") >= 1 << 57


# --- a store that serves one client at a time


@contextmanager
def legacy_store() -> Iterator[int]:
    """The port of a real TCPStore without libuv in a process of its own."""
    code = (
        "import sys, torch.distributed as d\n"
        "store = d.TCPStore('127.0.0.1', int(sys.argv[1]), world_size=1, is_master=True, use_libuv=False)\n"
        "print('ready', flush=True)\nsys.stdin.read()"
    )
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as store:
        try:
            assert store.stdout is not None and store.stdout.readline() == "ready\n"
            yield port
        finally:
            store.kill()


def seconds_to_an_answer(port: int) -> float:
    """How long a client waits that connects now."""
    started = time.monotonic()
    with ask_store.connect("127.0.0.1", port, started + 20) as client:
        hello = struct.pack("<BIBI", ask_store.VALIDATE, ask_store.MAGIC, ask_store.PING, ask_store.NONCE)
        client.sendall(hello)
        assert ask_store.receive(client, 4, started + 20) == hello[-4:]
    return time.monotonic() - started


def said_by_the_doctor() -> bytes:
    """All that the doctor sends to a store, recorded where a store answers."""
    sent = b""
    with legacy_store() as port, socket.create_server(("127.0.0.1", 0)) as relay:
        code = (
            "import sys, time; from ddp_doctor.workers import ask_store; ask_store.SESSION_SECONDS = 5\n"
            "keys = ['/default_pg/0//cpu//0/%d' % rank for rank in range(8)]\n"
            "print(ask_store.session('127.0.0.1', int(sys.argv[1]), time.monotonic() + 9, keys))"
        )
        asker = subprocess.Popen([sys.executable, "-c", code, str(relay.getsockname()[1])], env=ENVIRON)
        near, _ = relay.accept()
        with near, socket.create_connection(("127.0.0.1", port)) as far:
            while True:
                for end in select.select([near, far], [], [], 5)[0]:
                    data = end.recv(65536)
                    (far if end is near else near).sendall(data)
                    sent += data if end is near else b""
                    if not data:
                        break
                else:
                    continue
                break
        assert asker.wait() == 0
    return sent


@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_a_store_goes_on_wherever_in_a_query_the_doctor_dies(step: int) -> None:
    sent = said_by_the_doctor()
    assert len(sent) > 300 and b"/default_pg/0//cpu//0/7" in sent
    with legacy_store() as port:
        # within the first number, at its end, within the second question, and so on
        for end in sorted({1, 4, 5, 10, 11, 19, 27, 32, *range(1, len(sent), step)}):
            waits = []
            while min(waits, default=1.0) > 0.2 and len(waits) < 5:  # on a busy machine everything waits now and then
                with socket.create_connection(("127.0.0.1", port)) as dying:
                    dying.sendall(sent[:end])
                waits.append(seconds_to_an_answer(port))
            assert min(waits) < 0.2, end


@pytest.mark.slow
def test_a_doctor_that_is_killed_while_it_asks_leaves_a_legacy_store_serving() -> None:
    fault = Fault("legacy", (), None, (rank(0, 2, USE_LIBUV="0"),), "", settle=1.0)
    with running(fault) as (process,):
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        port = int(next(each for each in environ if each.startswith(b"MASTER_PORT=")).partition(b"=")[2])
        waits: list[float] = []
        while len(waits) < 2 or (min(waits) > 0.2 and len(waits) < 6):
            attaching = subprocess.Popen(
                [*ATTACH, str(process.pid)], env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            asker = until(lambda doctor=attaching: worker(doctor.pid, "ask_store") or ended(doctor))
            # a store that stands still keeps the doctor in the middle of its question
            process.send_signal(signal.SIGSTOP)
            try:
                if asker is True or not until(partial(asks, port, asker)):
                    continue  # it had asked before this was noticed
                attaching.send_signal(signal.SIGKILL)
                attaching.wait()
                until(partial(gone, asker))
            finally:
                process.send_signal(signal.SIGCONT)
                attaching.wait()
            waits.append(seconds_to_an_answer(port))
        assert min(waits) < 0.2
        assert process.poll() is None


def asks(port: int, asker: int) -> bool | None:
    """True once a store has a connection besides its host's own; False if the asker is gone without."""
    if connections_to(port, os.getpid()) > 1:
        return True
    return False if gone(asker) else None


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What the condition says once it says anything."""
    give_up = time.monotonic() + seconds
    while (said := condition()) is None:
        assert time.monotonic() < give_up
    return said


def gone(pid: int) -> bool | None:
    """True once a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX" or None
    except OSError:
        return True


def ended(process: subprocess.Popen[bytes]) -> bool | None:
    """True once a child has ended."""
    return process.poll() is not None or None


def worker(doctor_pid: int, name: str) -> int | None:
    """The PID of that worker of a doctor."""
    try:
        for children in Path(f"/proc/{doctor_pid}/task").glob("*/children"):
            for pid in children.read_text().split():
                if f"/{name}.py" in Path(f"/proc/{pid}/cmdline").read_text():
                    return int(pid)
    except OSError:
        pass
    return None


def connections_to(port: int, pid: int) -> int:
    """How many connections to a port there are; the host of a store has one itself."""
    wanted, established = f":{port:04X}", 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            established += fields[2].endswith(wanted) and fields[3] == "01"
    return established


# --- memory


@contextmanager
def memory_group() -> Iterator[Path]:
    """A memory cgroup (version 1) below our own; what is started meanwhile is in it, until this process has left it."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    ours = next((Path(f"/sys/fs/cgroup/memory{path}") for _, kinds, path in lines if kinds == "memory"), None)
    if ours is None or os.geteuid() != 0 or not os.access(ours, os.W_OK):
        pytest.skip("no memory cgroup of version 1 can be made here")
    group = ours / f"ddp-doctor-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield group
    finally:
        (ours / "cgroup.procs").write_text(str(os.getpid()))
        until(lambda: True if not (group / "cgroup.procs").read_text() else None, 20)
        group.rmdir()


def kills(group: Path) -> int:
    """How many processes of a cgroup the kernel has ended for want of memory."""
    return int((group / "memory.oom_control").read_text().split()[-1])


@pytest.mark.root
def test_a_job_that_has_little_memory_left_outlives_the_doctor() -> None:
    with memory_group() as group:
        with running(Fault("memory", (), None, (rank(0, 3), rank(1, 3)), "", settle=2.0)) as started:
            # the kernel may take any process of the group, and this one is not the job's
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
            for left in (64, 16):
                statistic = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                used = int(statistic["total_rss"]) + int(statistic["total_mapped_file"])
                (group / "memory.limit_in_bytes").write_text(str(used + (left << 20)))
                done = subprocess.run(
                    ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"), *ATTACH, str(started[0].pid)],
                    env=ENVIRON, capture_output=True, text=True, timeout=90, check=False,
                )  # fmt: skip
                assert [process.poll() for process in started] == [None, None]
                assert "Traceback" not in done.stderr
            assert kills(group) > 0
            (group / "memory.limit_in_bytes").write_text("-1")


@pytest.mark.slow
def test_a_training_loop_loses_no_more_to_being_looked_at_than_to_any_other_program() -> None:
    benchmark = ROOT / "benchmarks" / "attach_harmless.py"
    shielded = ["--shielded"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [sys.executable, str(benchmark), "--attaches", "15", "--json", *shielded],
        capture_output=True,
        text=True,
        check=False,
    )
    for row in json.loads(done.stdout):
        assert not row["dead"] and not row["changed_state"]
        assert row["longest_step"] < row["longest_step_beside"] + 0.050
