"""What a trial communicator adds to checks that have evidence of their own."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks import communicator
from ddp_doctor_checks.gpu.gpu_fault import GpuFault
from ddp_doctor_checks.gpu.gpu_isolation import GpuIsolation
from ddp_doctor_checks.gpu.shm_small import ShmSmall
from ddp_doctor_checks.launch.duplicate_gpu import DuplicateGpu
from ddp_doctor_checks.launch.duplicate_rank import DuplicateRank
from ddp_doctor_checks.launch.world_size_mismatch import WorldSizeMismatch
from ddp_doctor_checks.network.wrong_interface import WrongInterface
from ddp_doctor_checks.software.trial_failed import TrialFailed
from ddp_doctor_checks.software.version_mismatch import VersionMismatch
from trial import STARTED, meaning, passed, rank

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.model import Check, Confidence, Facts, Severity

TIMINGS = "Bootstrap timings total 0.1"


@pytest.mark.parametrize(
    ("check", "ranks", "named", "confidence"),
    [
        (
            WrongInterface,
            (rank(0, STARTED), rank(1, "WARN Bootstrap : no socket interface found", outcome="failed", code=5)),
            (1,),
            Confidence.CERTAIN,
        ),
        (
            DuplicateGpu,
            tuple(
                rank(number, "WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", outcome="failed")
                for number in range(2)
            ),
            (0, 1),
            Confidence.CERTAIN,
        ),
        (
            DuplicateRank,
            (rank(0, STARTED, "WARN Bootstrap Root : rank 1 of 2 ranks has already checked in"), rank(1, STARTED)),
            (1,),
            Confidence.CERTAIN,
        ),
        (WorldSizeMismatch, (rank(0, STARTED), rank(1, STARTED, world_size=3)), (0, 1), Confidence.CERTAIN),
        (VersionMismatch, (rank(0, STARTED), rank(1, STARTED, version="2.30.7")), (0, 1), Confidence.CERTAIN),
        (
            VersionMismatch,
            (rank(0), rank(1, "WARN nvmlInit_v2() failed: Driver/library version mismatch", outcome="failed")),
            (1,),
            Confidence.CERTAIN,
        ),
        (
            ShmSmall,
            (rank(0, "WARN Error: failed to extend /dev/shm/nccl-Ab1 to 9637892 bytes", outcome="failed"), rank(1)),
            (0,),
            Confidence.CERTAIN,
        ),
        (GpuIsolation, (passed(0), passed(1, shm_device=41)), (0, 1), Confidence.CERTAIN),
        (GpuFault, (rank(0, STARTED, TIMINGS), rank(1, STARTED)), (1,), Confidence.LIKELY),
        (GpuFault, (rank(0, STARTED), rank(1, step="device")), (1,), Confidence.LIKELY),
        (TrialFailed, (rank(0, "WARN Cuda failure 'unknown'", outcome="failed", error="unhandled cuda error"), rank(1)), (0,),
         Confidence.LIKELY),
        (TrialFailed, (rank(0, STARTED), rank(1, STARTED)), (0, 1), Confidence.LIKELY),
    ],
)  # fmt: skip
def test_each_check_tells_its_own(
    check: type[Check], ranks: tuple[CommunicatorRank, ...], named: tuple[int, ...], confidence: Confidence
) -> None:
    facts = meaning(*ranks)
    (finding,) = run_check(check, *facts).findings
    assert (finding.ranks, finding.confidence) == (named, confidence)
    assert [shown for shown, _ in communicator.from_communicator(Facts(facts))] == [check.id]


def test_one_dev_shm_each_slows_and_stops_nothing() -> None:
    (finding,) = run_check(GpuIsolation, *meaning(passed(0), passed(1, shm_device=41))).findings
    assert finding.severity is Severity.WARNING


def test_a_trial_that_passed_shows_nothing() -> None:
    assert list(communicator.from_communicator(Facts(meaning(passed(0), passed(1))))) == []
