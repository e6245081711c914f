"""Which port is shown to be the job's store, and how threads are told apart without pausing them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time

import pytest
from job_facts import PORT, connection, job, listener, pid_of, process, waiting

from ddp_doctor.facts.job import Connection, Job, JobRank, JobView, Task
from ddp_doctor.probes.job import _hosts_store
from ddp_doctor.workers import stacks

STORE = (Task(id=pid_of(0), name="python"), Task(id=9, name="pt_tcpstore_uv"))


def view(*ranks: JobRank) -> JobView:
    (whole, *rest) = job(*ranks)
    assert isinstance(whole, Job)
    return JobView(job=whole, ranks=tuple(each for each in rest if isinstance(each, JobRank)))


def hosts(rank: JobRank, port: int, *connections: Connection, tasks: tuple[Task, ...] = STORE) -> bool:
    return _hosts_store(process(0, tasks=tasks), listener(port=port, owner=pid_of(0)), view(rank), connections)


def test_the_port_that_the_hosts_own_rank_means() -> None:
    assert hosts(waiting(0, 1), PORT)


def test_another_port_of_that_process_is_none_even_if_a_rank_takes_it_for_the_store() -> None:
    """As the port of NCCL's bootstrap."""
    assert not hosts(waiting(0, 1), PORT + 1, connection(0, "ESTABLISHED", peer_port=PORT + 1))


def test_a_process_without_the_thread_of_a_store_hosts_none() -> None:
    assert not hosts(waiting(0, 1), PORT, tasks=STORE[:1])


def test_an_agent_is_a_client_of_its_own_store() -> None:
    agent = waiting(0, 1, master_port=None)
    assert not hosts(agent, PORT)
    assert hosts(agent, PORT, connection(0, "ESTABLISHED", peer_port=PORT))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thread_has_its_kernel_id_where_py_spy_does_not_tell() -> None:
    """As on Python 3.10, where only a paused process would show it."""
    code = "import threading as t, time; t.Thread(target=time.sleep, args=(60,)).start(); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            py_spy = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or "py-spy"
            threads, error, _ = stacks.dump([py_spy], process.pid, 10, "--nonblocking")
            assert threads, error
            told = {thread["thread_id"]: thread["os_thread_id"] for thread in threads}
            for thread in threads:
                thread["os_thread_id"] = None
            stacks.kernel_ids(process.pid, threads)
            assert {thread["thread_id"]: thread["os_thread_id"] for thread in threads} == told
            assert process.pid in told.values() and len(set(told.values())) == 2
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_clock_tells_who_ran() -> None:
    awake = threading.Event()
    sleeper = threading.Thread(target=awake.wait)
    sleeper.start()
    me, sleeping = threading.get_native_id(), sleeper.native_id
    time.sleep(0.05)
    first = stacks.Clock(os.getpid())
    time.sleep(0.05)
    second = stacks.Clock(os.getpid())
    assert second.still_since(first, [sleeping])
    assert not second.still_since(first, [sleeping, me])
    assert not second.still_since(first, [1])
    assert me in second.ran_since(first) and sleeping not in second.ran_since(first)
    awake.set()
    sleeper.join()


def test_a_stack_that_lost_its_outer_frames_yields_to_the_whole_one() -> None:
    def seen(*names: str) -> dict[str, object]:
        return {"frames": [{"name": name} for name in names]}

    torn = seen("_call", "_handle_fromlist", "import_", "leaf")
    assert stacks.wholeness(seen("train", "<module>")) > stacks.wholeness(torn)
    assert stacks.wholeness(seen("run", "Thread._bootstrap")) > stacks.wholeness(torn)
    assert stacks.wholeness(torn) > stacks.wholeness(seen("leaf")) > stacks.wholeness(seen())
