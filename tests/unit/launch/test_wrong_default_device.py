from __future__ import annotations

from ddp_doctor_checks.launch.wrong_default_device import WrongDefaultDevice
from gpu_facts import cuda, gpu, judge_gpus

from ddp_doctor.model import Absent, Severity

SMALL, LARGE = gpu(0, name="GTX 1080"), gpu(1, name="RTX 4090")


def test_a_number_that_nvidia_smi_counts_otherwise() -> None:
    judged = judge_gpus(WrongDefaultDevice, SMALL, LARGE, cuda(0, mask="1"))
    assert judged.outcome.status == "hit"
    found = judged.findings[0]
    assert found.severity is Severity.WARNING
    assert found.summary == "CUDA_VISIBLE_DEVICES=1 gives GTX 1080; nvidia-smi's GPU 1 is RTX 4090"


def test_same_order_same_model_bus_order_and_uuids_are_clear() -> None:
    assert judge_gpus(WrongDefaultDevice, SMALL, LARGE, cuda(1, mask="1")).outcome.status == "clear"
    assert judge_gpus(WrongDefaultDevice, gpu(0), gpu(1), cuda(0, mask="1")).outcome.status == "clear"
    assert judge_gpus(WrongDefaultDevice, SMALL, LARGE, cuda(0, mask="1", order="PCI_BUS_ID")).outcome.status == "clear"
    assert judge_gpus(WrongDefaultDevice, SMALL, LARGE, cuda(0, mask="GPU-0")).outcome.status == "clear"


def test_without_the_drivers_list_it_is_unknown() -> None:
    absent = Absent(kind="DriverGpu", status="timeout", reason="nvmlInit")
    assert judge_gpus(WrongDefaultDevice, absent, cuda(0, mask="1")).outcome.status == "unknown"
