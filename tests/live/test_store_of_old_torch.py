"""The stores of torch releases from 2023 and 2024 answer the read-only query, and nothing in them changes by it.

DDP_DOCTOR_TEST_OLD_TORCH names a folder with virtual environments, each with a torch of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jobs import free_port

from ddp_doctor.workers import ask_store

VARIABLE = "DDP_DOCTOR_TEST_OLD_TORCH"
FOLDER = os.environ.get(VARIABLE, "")
PYTHONS = sorted(Path(FOLDER).glob("*/bin/python")) if FOLDER else []
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux", reason="the doctor runs on Linux"),
    pytest.mark.skipif(not PYTHONS, reason=f"{VARIABLE} names no folder with */bin/python that has an old torch"),
]
THERE, MISSING = "/default_pg/0//cpu//0/1", "/default_pg/0//cpu//0/0"
STORE = """
import datetime, json, resource, sys, threading, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
port, libuv = int(sys.argv[1]), sys.argv[2] == "libuv"
long = datetime.timedelta(seconds=60)
def join():
    global client
    client = dist.TCPStore("127.0.0.1", port, 2, False, long, use_libuv=libuv)
joining = threading.Thread(target=join, daemon=True)
joining.start()
try:
    store = dist.TCPStore("127.0.0.1", port, 2, True, long, use_libuv=libuv)
except RuntimeError as error:
    print(error, flush=True)
    sys.exit()
joining.join()
store.set(sys.argv[3].removeprefix("/"), b"x")  # a TCPStore puts a slash before each key
print(torch.__version__, getattr(store, "libuvBackend", libuv), flush=True)
for count, _ in enumerate(sys.stdin, 1):
    added = client.add("count", 1)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"added": added == count, "keys": store.num_keys(), "resident": resident}), flush=True)
"""


class Store:
    """A TCPStore of that torch, in a process of its own, that two members joined."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process, self.port = process, port

    def use(self) -> dict[str, Any]:
        """What a member finds that writes and reads now; `seconds` is how long that takes it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        started = time.monotonic()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return {**found, "seconds": time.monotonic() - started}


@contextmanager
def running(python: Path, backend: str) -> Iterator[Store]:
    port = free_port()
    with subprocess.Popen(
        [str(python), "-c", STORE, str(port), backend, THERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            if "Libuv implementation missing" in said:
                pytest.skip("this torch was built without libuv")
            version, libuv = said.split()
            assert version.startswith("2.") and (libuv == "True") is (backend == "libuv")
            yield Store(process, port)
        finally:
            process.kill()


@pytest.mark.parametrize("backend", ["libuv", "legacy"])
@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.parts[-3])
def test_the_query_is_answered_rightly_and_the_store_goes_on(python: Path, backend: str) -> None:
    with running(python, backend) as store:
        before = store.use()
        for _ in range(20):
            answer = ask_store.ask("127.0.0.1", store.port, time.monotonic() + 5, [MISSING, THERE, "no-such-key"])
            assert (answer["verdict"], answer["joined"], answer["present"]) == ("store", 2, [THERE])
        assert answer["ranks"] == [1] and not answer["nccl_id"]
        after = store.use()
        assert after["added"] and after["keys"] == before["keys"]


@pytest.mark.parametrize("backend", ["libuv", "legacy"])
@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.parts[-3])
def test_the_store_goes_on_where_the_query_breaks_off(python: Path, backend: str) -> None:
    with running(python, backend) as store:
        store.use()
        for dialect in (ask_store.PingFirst, ask_store.CountFirst, ask_store.Unvalidated):
            said = dialect.hello + ask_store.check("init/", dialect.shift) + ask_store.check(THERE, dialect.shift)
            for end in (1, 3, 5, 9, 10, 20, 29, len(said)):
                waits: list[float] = []
                while min(waits, default=1.0) > 0.2 and len(waits) < 5:  # a busy machine lets everything wait at times
                    with socket.create_connection(("127.0.0.1", store.port)) as dying:
                        dying.sendall(said[:end])
                    waits.append(store.use()["seconds"])
                assert min(waits) < 0.2, (dialect, end)


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.parts[-3])
def test_no_store_takes_memory_for_what_it_does_not_understand(python: Path) -> None:
    with running(python, "legacy") as store:
        before = store.use()["resident"]
        ask_store.ask("127.0.0.1", store.port, time.monotonic() + 5, [THERE])
        assert store.use()["resident"] - before < 16 << 20
