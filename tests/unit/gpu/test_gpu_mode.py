from __future__ import annotations

from ddp_doctor_checks.gpu.gpu_mode import GpuMode
from gpu_facts import gpu, judge_gpus, launcher, node, state

from ddp_doctor.facts.gpu import GpuProcess
from ddp_doctor.model import Absent, Severity

HOLDER = GpuProcess(pid=77, state="S", command="python", mib=600)


def test_exclusive_and_in_use_is_an_error_and_exclusive_alone_a_note() -> None:
    used = judge_gpus(GpuMode, gpu(0, compute_mode="exclusive-process", processes=(HOLDER,))).findings
    free = judge_gpus(
        GpuMode, gpu(0, compute_mode="exclusive-process"), gpu(1, compute_mode="exclusive-process")
    ).findings
    assert "PID 77" in used[0].summary
    assert used[0].severity is Severity.ERROR
    assert [(finding.severity, finding.summary[:6]) for finding in free] == [(Severity.NOTE, "2 GPUs")]


def test_a_display_on_an_exclusive_gpu_is_not_in_the_way() -> None:
    shown = gpu(0, compute_mode="exclusive-process", processes=(GpuProcess(pid=5, use="graphics", state="S"),))
    assert [finding.severity for finding in judge_gpus(GpuMode, shown).findings] == [Severity.NOTE]


def test_prohibited_is_an_error() -> None:
    judged = judge_gpus(GpuMode, gpu(0, compute_mode="prohibited"))
    assert judged.outcome.status == "hit"
    assert judged.findings[0].severity is Severity.ERROR


def test_mig_stops_several_ranks_and_not_one() -> None:
    cut = gpu(0, mig=True, mig_uuids=("MIG-1", "MIG-2"))
    assert judge_gpus(GpuMode, cut, launcher(2)).findings[0].severity is Severity.ERROR
    assert judge_gpus(GpuMode, cut, launcher(1)).findings[0].severity is Severity.NOTE


def test_a_slow_start_is_a_note_only_without_persistence_mode() -> None:
    slow = state(seconds=21.0, slowest="nvmlInit")
    assert judge_gpus(GpuMode, slow, gpu(0, persistence=False)).findings[0].severity is Severity.NOTE
    assert judge_gpus(GpuMode, slow, gpu(0, persistence=True)).outcome.status == "clear"


def test_mps_is_a_note() -> None:
    assert judge_gpus(GpuMode, node(mps=True)).findings[0].severity is Severity.NOTE


def test_a_driver_that_is_silent_leaves_it_unknown() -> None:
    assert (
        judge_gpus(GpuMode, Absent(kind="DriverGpu", status="timeout", reason="nvmlInit")).outcome.status == "unknown"
    )
