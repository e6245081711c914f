from __future__ import annotations

import msgspec
from ddp_doctor_checks.gpu.fabric_manager import FabricManager
from gpu_facts import cuda, gpu, judge_gpus

from ddp_doctor.facts.p2p import PairRoute
from ddp_doctor.model import Absent, Confidence


def test_cuda_that_answers_802_is_certain() -> None:
    judged = judge_gpus(FabricManager, cuda(code=802, result="CUDA_ERROR_SYSTEM_NOT_READY", count=None))
    assert judged.outcome.status == "hit"
    assert judged.findings[0].confidence is Confidence.CERTAIN
    assert "802" in judged.findings[0].summary


def test_gpus_that_are_not_registered_are_likely() -> None:
    judged = judge_gpus(
        FabricManager, gpu(0, fabric_state="in-progress"), gpu(1, fabric_state="completed", fabric_status=0)
    )
    assert judged.findings[0].summary == "not registered with the NVSwitch fabric: 1 of 2 GPUs"
    assert judged.findings[0].confidence is Confidence.LIKELY


def test_a_pair_on_nvlink_that_the_driver_denies_stops_nccl() -> None:
    denied = PairRoute(first=0, second=1, route="fails", why="the driver says: unknown", version="2.27.5")
    judged = judge_gpus(FabricManager, denied)
    assert judged.findings[0].summary == "the driver refuses P2P between GPUs that NVLink connects: 0-1"
    assert judge_gpus(FabricManager, msgspec.structs.replace(denied, route="shm")).outcome.status == "clear"


def test_completed_and_unsupported_are_clear() -> None:
    judged = judge_gpus(
        FabricManager, gpu(0, fabric_state="completed", fabric_status=0), gpu(1, fabric_state="not-supported")
    )
    assert judged.outcome.status == "clear"


def test_a_driver_that_is_silent_leaves_it_unknown() -> None:
    judged = judge_gpus(
        FabricManager, Absent(kind="DriverGpu", status="timeout", reason="nvmlInit: no answer in 30.0 s")
    )
    assert judged.outcome.status == "unknown"
