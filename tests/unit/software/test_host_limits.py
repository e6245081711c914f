"""DDP503 on values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.software.host_limits import HostLimits
from ddp_doctor_checks.software.torch_unusable import TorchUnusable

from ddp_doctor.facts.host import Limit, Memory
from ddp_doctor.facts.software import TorchRuntime, TrialRank
from ddp_doctor.model import Absent, Fact, Severity, Stage

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


def died(how: str) -> TorchRuntime:
    return TorchRuntime(source="python -c 'import torch'", outcome="died", error=f"import torch was killed by {how}")


def raised(error: str) -> TorchRuntime:
    return TorchRuntime(source="python -c 'import torch'", outcome="raised", error=error)


LITTLE = Memory(source="/sys/fs/cgroup/memory.max", available=56 << 20, total=100 << 20)
CPU = Limit(source="ulimit -t", name="cpu", soft=30, hard=None)
SPACE = Limit(source="ulimit -v", name="as", soft=2 << 30, hard=None)
TASKS = Limit(source="/c/pids.max", name="pids", soft=14, hard=14, used=11)


@pytest.mark.parametrize(
    ("seen", "words", "fix"),
    [
        ((ENOUGH, CPU, died("SIGXCPU")), "30 s of processor time", "ulimit -St unlimited"),
        ((LITTLE, died("SIGKILL")), "56.0 MiB of memory", "ps -eo"),
        ((ENOUGH, SPACE, raised("ImportError: libx.so: failed to map segment from shared object")), "may map 2.0 GiB", "-Sv"),
        ((ENOUGH, TASKS, raised("RuntimeError: can't start new thread")), "3 more threads", "echo max"),
        ((ENOUGH, TASKS, raised("RuntimeError: unable to start watchdog thread")), "3 more threads", "echo max"),
    ],
)  # fmt: skip
def test_hit_the_limit_that_ended_the_import_is_the_cause_not_torch(
    seen: tuple[Fact, ...], words: str, fix: str
) -> None:
    (finding,) = run_check(HostLimits, *seen).findings
    assert finding.severity is Severity.ERROR and words in finding.summary
    assert finding.fixes[0].commands[0].find(fix) >= 0
    judged = run_check(TorchUnusable, *seen)
    assert judged.outcome.status == "not-applicable" and "DDP503" in judged.outcome.reason


def test_near_miss_limits_that_the_failed_import_does_not_speak_of() -> None:
    broken = raised("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory")
    hour = Limit(source="ulimit -t", name="cpu", soft=3600)
    assert run_check(HostLimits, ENOUGH, hour, SPACE, broken).outcome.status == "clear"
    assert run_check(TorchUnusable, ENOUGH, hour, SPACE, broken).outcome.status == "hit"


def test_hit_hardly_a_port_is_left() -> None:
    def severity(soft: int, used: int, *more: Fact) -> Severity:
        ports = Limit(source="/proc/sys/net/ipv4/ip_local_port_range", name="ports", soft=soft, used=used)
        (finding,) = run_check(HostLimits, ENOUGH, ports, *more).findings
        assert finding.fixes[0].commands == ('sysctl -w net.ipv4.ip_local_port_range="32768 60999"',)
        return finding.severity

    stuck = TrialRank(
        rank=0, world_size=2, backend="gloo", stage=Stage.GLOO_MESH, outcome="failed", error="Address already in use"
    )
    assert severity(2, 0) is Severity.ERROR
    assert severity(1000, 960) is Severity.WARNING
    assert severity(1000, 960, stuck) is Severity.ERROR


def test_near_miss_ports() -> None:
    assert run_check(HostLimits, ENOUGH, Limit(name="ports", soft=28232, used=300)).outcome.status == "clear"
