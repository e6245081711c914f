from __future__ import annotations

import errno

import pytest
from ddp_doctor_checks.gpu.gpu_not_visible import GpuNotVisible
from gpu_facts import cuda, gpu, judge_gpus, node, state, torch, torch_cuda

from ddp_doctor.facts.gpu import CudaView, DeviceNode
from ddp_doctor.judge import Judgement
from ddp_doctor.model import Absent, Confidence, Finding, Severity

NO_CUDA = {"library": False, "code": None, "result": "libcuda.so.1: cannot open", "count": None}
NO_NVML = {"library": False, "code": None, "status": "libnvidia-ml.so.1: cannot open"}


def only(judged: Judgement) -> Finding:
    assert judged.outcome.status == "hit"
    (finding,) = judged.findings
    return finding


def test_nvml_without_cuda_is_named_though_torch_counts_8() -> None:
    found = only(judge_gpus(GpuNotVisible, cuda(**NO_CUDA), state(gpus=8), torch_cuda(False, 8, "no NVIDIA driver")))
    assert found.summary == "NVML counts 8 GPUs, but libcuda.so.1 is not here"
    assert (found.severity, found.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert any("device_count() 8" in item.value for item in found.evidence)


def test_a_cgroup_that_refuses_is_told_from_permission_bits() -> None:
    failed = cuda(code=100, result="CUDA_ERROR_NO_DEVICE", count=None)

    def refusal(code: int) -> str:
        shut = DeviceNode(path="/dev/nvidia0", mode="crw-rw----", owner="0:44", error="refused", code=code)
        return only(judge_gpus(GpuNotVisible, failed, node(nodes=(shut,)))).summary

    assert "cgroup" in refusal(errno.EPERM)
    assert "crw-rw----, owner 0:44" in refusal(errno.EACCES)


def test_a_mask_is_an_error_where_it_is_malformed_and_a_note_where_it_hides_all() -> None:
    whole = cuda(0, 1, masked=False)

    def under(mask: str, *seen: int) -> Finding:
        view = cuda(*seen, mask=mask, code=0 if seen else 100)
        return only(judge_gpus(GpuNotVisible, view, whole, node(variables={"CUDA_VISIBLE_DEVICES": mask})))

    assert under("0,,1", 0).severity is Severity.ERROR
    assert under("0,,1", 0).fixes[0].commands == ("export CUDA_VISIBLE_DEVICES=0,1",)
    assert "sees nothing at all" in under("0,0").summary
    assert under("0,7", 0).fixes[0].commands == ("export CUDA_VISIBLE_DEVICES=0",)
    assert under("-1").severity is Severity.NOTE
    assert under("NoDevFiles").severity is Severity.WARNING


def test_the_seen_devices_decide_about_a_number_that_looks_too_high() -> None:
    view = cuda(0, 1, mask="0,7")
    judged = judge_gpus(GpuNotVisible, view, cuda(0, masked=False), node(variables={"CUDA_VISIBLE_DEVICES": "0,7"}))
    assert judged.outcome.status == "clear"


def test_no_gpu_is_a_note_for_a_cuda_build_and_nothing_for_a_cpu_build() -> None:
    bare = (node(pci=(), nodes=(), module_version=""), state(**NO_NVML), cuda(**NO_CUDA))
    assert only(judge_gpus(GpuNotVisible, *bare, torch_cuda(False, 0))).severity is Severity.NOTE
    assert judge_gpus(GpuNotVisible, *bare, torch(""), torch_cuda(False, 0)).outcome.status == "clear"


def test_a_silent_driver_names_the_call() -> None:
    silent = state(code=None, unanswered="nvmlInit", seconds=30.0)
    found = only(judge_gpus(GpuNotVisible, silent, Absent(kind="DriverGpu", status="timeout")))
    assert found.summary == "nvmlInit gave no answer in 30 s"
    assert found.confidence is Confidence.LIKELY


@pytest.mark.parametrize(("code", "owner"), [(802, "DDP406"), (803, "DDP501"), (46, "DDP408")])
def test_causes_with_an_id_of_their_own_are_left_to_them(code: int, owner: str) -> None:
    judged = judge_gpus(GpuNotVisible, cuda(code=code, result="CUDA_ERROR", count=None))
    assert judged.outcome.status == "clear", owner


def test_torch_that_refuses_what_cuda_sees() -> None:
    found = only(judge_gpus(GpuNotVisible, torch_cuda(False, 2, "libcudart.so.12: undefined symbol")))
    assert "undefined symbol" in found.summary
    assert found.confidence is Confidence.LIKELY


def test_a_healthy_node_is_clear_and_a_rocm_build_is_no_subject() -> None:
    assert judge_gpus(GpuNotVisible).outcome.status == "clear"
    assert judge_gpus(GpuNotVisible, torch("", hip="6.2")).outcome.status == "not-applicable"


def test_without_cudas_answer_it_is_unknown() -> None:
    crashed = Absent(kind=CudaView.kind(), status="crashed", reason="killed by signal 11")
    judged = judge_gpus(GpuNotVisible, crashed, gpu(0))
    assert (judged.outcome.status, judged.outcome.reason) == ("unknown", "killed by signal 11")


def test_a_silent_driver_is_told_where_torch_is_not_known() -> None:
    silent = cuda(code=None, unanswered="cuInit", seconds=30.0)
    unseen = Absent(kind="TorchInstall", status="timeout", reason="no answer in 5.0 s")
    assert only(judge_gpus(GpuNotVisible, silent, unseen, node(pci=()))).severity is Severity.WARNING
