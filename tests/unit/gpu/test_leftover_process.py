from __future__ import annotations

from ddp_doctor_checks.gpu.leftover_process import LeftoverProcess
from gpu_facts import gpu, judge_gpus, node

from ddp_doctor.facts.gpu import GpuProcess
from ddp_doctor.model import Absent, Confidence, Severity


def held_by(**process: object) -> object:
    return gpu(0, processes=(GpuProcess(pid=77, mib=4096, **process),))  # type: ignore[arg-type]


def test_a_process_that_is_gone_still_holds_memory() -> None:
    judged = judge_gpus(LeftoverProcess, held_by())  # type: ignore[arg-type]
    assert judged.outcome.status == "hit"
    found = judged.findings[0]
    assert found.summary.startswith("PID 77 is gone, but still holds 4096 MiB of GPU 0")
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LIKELY)


def test_a_pid_of_another_namespace_says_nothing() -> None:
    judged = judge_gpus(LeftoverProcess, held_by(), node(own_pids=True))  # type: ignore[arg-type]
    assert judged.outcome.status == "clear"


def test_a_process_stuck_in_the_kernel() -> None:
    found = judge_gpus(LeftoverProcess, held_by(state="D", command="python", parent=9)).findings[0]  # type: ignore[arg-type]
    assert "state D" in found.summary


def test_an_orphan_may_be_nohup_and_is_a_note() -> None:
    found = judge_gpus(LeftoverProcess, held_by(state="S", command="python3", parent=1)).findings[0]  # type: ignore[arg-type]
    assert (found.severity, found.confidence) == (Severity.NOTE, Confidence.POSSIBLE)


def test_a_running_process_with_a_parent_is_clear() -> None:
    judged = judge_gpus(LeftoverProcess, held_by(state="S", command="python3", parent=4000))  # type: ignore[arg-type]
    assert judged.outcome.status == "clear"


def test_a_driver_that_is_silent_leaves_it_unknown() -> None:
    judged = judge_gpus(LeftoverProcess, Absent(kind="DriverGpu", status="timeout", reason="nvmlInit"))
    assert judged.outcome.status == "unknown"
