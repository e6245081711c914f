from __future__ import annotations

import pytest
from ddp_doctor_checks.software.version_mismatch import VersionMismatch
from gpu_facts import cuda, judge_gpus, node, state, torch, torch_cuda

from ddp_doctor.model import Absent, Confidence


def test_a_driver_of_an_older_major_is_too_old() -> None:
    old = (cuda(0, cuda_version="11.4"), state(driver_version="470.256.02", cuda_version="11.4"), torch_cuda(False, 2))
    judged = judge_gpus(VersionMismatch, *old)
    assert judged.outcome.status == "hit"
    found = judged.findings[0]
    assert found.summary == (
        "the driver 470.256.02 runs CUDA 11.4, torch is built with CUDA 12.8, which wants 525.60.13 or newer"
    )
    assert found.confidence is Confidence.CERTAIN
    assert "cu118" in found.fixes[1].commands[0]


@pytest.mark.parametrize(("runs", "wanted"), [("12.2", "12.8"), ("11.0", "11.8"), ("13.0", "12.6")])
def test_any_minor_of_the_same_major_will_do(runs: str, wanted: str) -> None:
    judged = judge_gpus(VersionMismatch, cuda(0, cuda_version=runs), torch(wanted), torch_cuda(False, 1))
    assert judged.outcome.status == "clear"


def test_torch_that_works_disproves_it() -> None:
    assert judge_gpus(VersionMismatch, cuda(0, cuda_version="11.4"), torch_cuda(True, 1)).outcome.status == "clear"


def test_nvmls_word_is_only_likely() -> None:
    absent = cuda(library=False, code=None, cuda_version="", count=None)
    found = judge_gpus(VersionMismatch, absent, state(cuda_version="11.4"), torch_cuda(False, 0)).findings[0]
    assert found.confidence is Confidence.LIKELY


def test_kernel_module_and_libraries_of_different_versions() -> None:
    found = judge_gpus(VersionMismatch, state(code=18, status="Driver/library version mismatch", gpus=None)).findings[0]
    assert "kernel module is 570.86.15" in found.summary
    assert "modprobe -r" in found.fixes[0].commands[0]
    inside = judge_gpus(VersionMismatch, state(code=18), node(container="/.dockerenv")).findings[0]
    assert inside.fixes[0].needs == "container restart"


def test_without_cudas_answer_it_is_unknown() -> None:
    judged = judge_gpus(VersionMismatch, Absent(kind="CudaView", status="timeout", reason="cuInit"))
    assert judged.outcome.status == "unknown"
