"""DDP503 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.software.host_limits import HostLimits

from ddp_doctor.facts.host import Limit, Memory
from ddp_doctor.model import Absent, Severity

ENOUGH = Memory(source="/proc/meminfo", available=1 << 33, total=1 << 34)


@pytest.mark.parametrize(
    ("limit", "severity", "fix"),
    [
        (Limit(name="nofile", soft=64, hard=20000), Severity.WARNING, "ulimit -Sn 20000"),
        (Limit(name="nofile", soft=32, hard=64), Severity.ERROR, "ulimit -Hn 65536 && ulimit -Sn 65536"),
        (Limit(name="nproc", soft=100, hard=100, used=90), Severity.ERROR, "ulimit -Hu 65536 && ulimit -Su 65536"),
        (Limit(name="nproc", soft=200, hard=None, used=100), Severity.WARNING, "ulimit -Su unlimited"),
        (
            Limit(source="/c/pids.max", name="pids", soft=100, hard=100, used=99),
            Severity.ERROR,
            "echo max > /c/pids.max",
        ),
        (Limit(name="memlock", soft=65536, hard=None, needed_by=("mlx5_0",)), Severity.WARNING, "ulimit -Sl unlimited"),
    ],
)
def test_hit(limit: Limit, severity: Severity, fix: str) -> None:
    judged = run_check(HostLimits, limit, ENOUGH)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.severity is severity and finding.fixes[0].commands[0] == fix


def test_hit_no_memory_left() -> None:
    memory = Memory(source="/sys/fs/cgroup/memory.max", available=100 << 20, total=1 << 30)
    (finding,) = run_check(HostLimits, Limit(name="nofile", soft=1024), memory).findings
    assert finding.severity is Severity.WARNING and "100.0 MiB" in finding.summary


@pytest.mark.parametrize(
    "limit",
    [
        Limit(name="nofile", soft=1024, hard=4096),
        Limit(name="nproc", soft=100, used=90, exempt=True),
        Limit(name="nproc", soft=4096, used=90),
        Limit(name="memlock", soft=65536),
        Limit(name="memlock", soft=65536, needed_by=("mlx5_0",), exempt=True),
        Limit(name="memlock", soft=None, needed_by=("mlx5_0",)),
    ],
)
def test_near_miss(limit: Limit) -> None:
    assert run_check(HostLimits, limit, ENOUGH).outcome.status == "clear"


def test_unknown() -> None:
    absent = Absent(kind="Limit", status="timeout", reason="the user's processes could not be counted")
    assert run_check(HostLimits, Limit(name="nproc", soft=100), ENOUGH, absent).outcome.status == "unknown"
