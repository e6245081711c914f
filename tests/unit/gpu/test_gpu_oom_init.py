from __future__ import annotations

from ddp_doctor_checks.gpu.gpu_oom_init import GpuOomInit
from gpu_facts import cuda, gpu, judge_gpus

from ddp_doctor.facts.gpu import GpuProcess
from ddp_doctor.model import Absent, Severity

HOLDER = GpuProcess(pid=77, state="S", command="python", mib=81000)


def test_a_full_gpu_is_an_error_with_the_pid() -> None:
    judged = judge_gpus(GpuOomInit, gpu(0, memory_free=200, memory_used=81720, processes=(HOLDER,)))
    assert judged.outcome.status == "hit"
    found = judged.findings[0]
    assert found.severity is Severity.ERROR
    assert "PID 77 (python, state S) 81000 MiB" in found.summary
    assert found.fixes[0].commands == ("ps -o pid,ppid,user,lstart,cmd -p 77",)


def test_little_room_is_a_warning() -> None:
    found = judge_gpus(GpuOomInit, gpu(0, memory_free=900, memory_used=81020)).findings[0]
    assert found.severity is Severity.WARNING


def test_a_small_idle_card_and_a_full_one_outside_the_mask_are_clear() -> None:
    small = gpu(0, memory_total=1024, memory_free=900, memory_used=124)
    full = gpu(1, memory_free=10, memory_used=81910)
    assert judge_gpus(GpuOomInit, small, full, cuda(0, mask="0")).outcome.status == "clear"


def test_a_driver_that_is_silent_leaves_it_unknown() -> None:
    assert (
        judge_gpus(GpuOomInit, Absent(kind="DriverGpu", status="timeout", reason="nvmlInit")).outcome.status
        == "unknown"
    )
