"""Limits and memory of real processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_doctor.facts.host import Limit, Memory, ShmSpace
from ddp_doctor.host import Host
from ddp_doctor.model import Facts
from ddp_doctor.probes import limits, shm

COUNT = """
import sys
sys.path.insert(0, sys.argv[1])
scope = {}
exec(open(sys.argv[1] + "/ddp_doctor/workers/count_tasks.py").read(), scope)
scope["main"]({"uid": int(sys.argv[2])}, print, None)
"""


def test_limits_are_those_of_this_process() -> None:
    seen = list(limits.take(Host(10.0), Facts()))
    found = {item.name: item for item in seen if isinstance(item, Limit)}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (found["nofile"].soft, found["nofile"].hard) == (soft, hard)
    assert {"nofile", "nproc", "memlock", "cpu", "as", "ports"} <= found.keys()
    (memory,) = [item for item in seen if isinstance(item, Memory)]
    assert 0 < memory.available <= memory.total


def test_cgroup_limits_come_from_every_level_above(tmp_path: Path) -> None:
    class Container(Host):
        """This machine with another cgroup tree."""

        def kernel(self, path: str) -> str | None:
            return FILES.get(path)

    FILES = {
        "/proc/self/cgroup": "0::/job/step\n",
        "/proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n",
        "/sys/fs/cgroup/job/pids.max": "100\n",
        "/sys/fs/cgroup/job/pids.current": "93\n",
        "/sys/fs/cgroup/job/step/pids.max": "max\n",
        "/sys/fs/cgroup/job/memory.max": "1000000\n",
        "/sys/fs/cgroup/job/memory.current": "950000\n",
        "/sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 50000\n",
    }
    seen = list(limits.take(Container(10.0), Facts()))
    (pids,) = [item for item in seen if isinstance(item, Limit) and item.name == "pids"]
    assert pids.left == 7 and pids.source == "/sys/fs/cgroup/job/pids.max"
    (memory,) = [item for item in seen if isinstance(item, Memory)]
    assert memory.available == 100000 and memory.source == "/sys/fs/cgroup/job/memory.max"


def test_threads_of_a_user_are_counted() -> None:
    root = str(Path(limits.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", COUNT, root, str(os.getuid())], capture_output=True, text=True)
    assert int(done.stdout.split(":")[1].strip(" }\n")) >= 2


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no /dev/shm")
def test_shm_is_measured() -> None:
    (space,) = shm.take(Host(10.0), Facts())
    assert (
        isinstance(space, ShmSpace) and space.size == os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize
    )
    assert space.device == os.stat("/dev/shm").st_dev


@pytest.mark.skipif(os.getuid() == 0, reason="a limit of tasks does not bind root")
def test_a_refused_fork_says_that_the_limit_is_reached() -> None:
    code = (
        "import resource; from ddp_doctor.host import Host; from ddp_doctor.model import Facts;"
        "from ddp_doctor.probes import limits; resource.setrlimit(resource.RLIMIT_NPROC, (1, 1));"
        "print([item.left for item in limits.take(Host(5.0), Facts()) if getattr(item, 'name', '') == 'nproc'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0]"
