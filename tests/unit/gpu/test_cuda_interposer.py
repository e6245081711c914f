from __future__ import annotations

from ddp_doctor_checks.gpu.cuda_interposer import CudaInterposer
from gpu_facts import cuda, judge_gpus, node

from ddp_doctor.model import Absent, Severity

LIBRARY = "/usr/local/vgpu/libvgpu.so"


def test_a_sharing_library_under_several_gpus_is_a_warning_and_under_one_a_note() -> None:
    several = judge_gpus(CudaInterposer, node(preloaded=(LIBRARY,), variables={"CUDA_DEVICE_MEMORY_LIMIT_0": "10g"}))
    assert several.outcome.status == "hit"
    assert several.findings[0].severity is Severity.WARNING
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=10g" in several.findings[0].evidence[0].value
    assert judge_gpus(CudaInterposer, node(preloaded=(LIBRARY,)), cuda(0)).findings[0].severity is Severity.NOTE


def test_the_printed_fix_takes_the_finding_away() -> None:
    fix = judge_gpus(CudaInterposer, node(preloaded=(LIBRARY,))).findings[0].fixes[0].commands[0]
    name, value = fix.removeprefix("export ").split("=")
    assert judge_gpus(CudaInterposer, node(preloaded=(LIBRARY,), variables={name: value})).outcome.status == "clear"


def test_other_preloaded_libraries_are_clear() -> None:
    judged = judge_gpus(CudaInterposer, node(preloaded=("/usr/lib/libjemalloc.so.2",)))
    assert judged.outcome.status == "clear"


def test_without_a_look_at_the_node_it_is_unknown() -> None:
    judged = judge_gpus(CudaInterposer, Absent(kind="GpuNode", status="timeout", reason="open /dev/nvidia0"))
    assert judged.outcome.status == "unknown"
