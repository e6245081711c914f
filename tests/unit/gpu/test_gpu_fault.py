from __future__ import annotations

from ddp_doctor_checks.gpu.gpu_fault import GpuFault
from gpu_facts import cuda, gpu, judge_gpus

from ddp_doctor.facts.gpu import CallError
from ddp_doctor.model import Absent, Severity

LOST = CallError(call="nvmlDeviceGetHandleByIndex", code=15, text="GPU is lost")
MASKED = cuda(0, mask="0")


def test_a_lost_gpu_is_an_error_whatever_the_mask() -> None:
    judged = judge_gpus(GpuFault, gpu(0), gpu(1, uuid="", name="", errors=(LOST,)), MASKED)
    assert judged.outcome.status == "hit"
    assert judged.findings[0].summary == "GPU 1 does not answer: GPU is lost"
    assert judged.findings[0].severity is Severity.ERROR


def test_faulty_memory_weighs_less_outside_the_mask() -> None:
    inside = judge_gpus(GpuFault, gpu(0, remap_failure=True), MASKED).findings[0]
    outside = judge_gpus(GpuFault, gpu(0), gpu(1, remap_failure=True), MASKED).findings[0]
    assert (inside.severity, outside.severity) == (Severity.ERROR, Severity.WARNING)
    assert "outside CUDA_VISIBLE_DEVICES" in outside.summary


def test_a_call_that_is_merely_not_permitted_is_no_fault() -> None:
    refused = CallError(call="nvmlDeviceGetMigMode", code=4, text="Insufficient Permissions")
    assert (
        judge_gpus(GpuFault, gpu(0, ecc_uncorrected=0, remap_failure=False, errors=(refused,))).outcome.status
        == "clear"
    )


def test_a_driver_that_is_silent_leaves_it_unknown() -> None:
    judged = judge_gpus(GpuFault, Absent(kind="DriverGpu", status="timeout", reason="nvmlInit: no answer in 30.0 s"))
    assert judged.outcome.status == "unknown"
