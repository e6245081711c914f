from __future__ import annotations

from ddp_doctor_checks.launch.nproc_gt_gpus import NprocGtGpus
from gpu_facts import cuda, gpu, judge_gpus, launcher, torch

from ddp_doctor.facts.software import TrialRank
from ddp_doctor.model import Absent, Confidence, Stage


def test_four_ranks_on_two_gpus() -> None:
    found = judge_gpus(NprocGtGpus, launcher(4)).findings[0]
    assert found.summary == "4 ranks on this node, 2 visible GPUs"
    assert found.confidence is Confidence.LIKELY


def test_the_number_the_trial_was_asked_for_counts_with_nccl_only() -> None:
    def trial(backend: str) -> TrialRank:
        return TrialRank(rank=0, world_size=4, backend=backend, stage=Stage.PYTHON, outcome="failed")

    assert judge_gpus(NprocGtGpus, trial("nccl")).outcome.status == "hit"
    assert judge_gpus(NprocGtGpus, trial("gloo")).outcome.status == "clear"


def test_a_mask_of_one_per_rank_and_a_cpu_build_are_clear() -> None:
    assert judge_gpus(NprocGtGpus, launcher(2), cuda(1, mask="1"), cuda(0, 1, masked=False)).outcome.status == "clear"
    assert judge_gpus(NprocGtGpus, launcher(4), torch("")).outcome.status == "clear"
    assert judge_gpus(NprocGtGpus, launcher(2), gpu(0), gpu(1)).outcome.status == "clear"


def test_without_cudas_answer_it_is_unknown() -> None:
    judged = judge_gpus(NprocGtGpus, launcher(4), Absent(kind="CudaView", status="timeout", reason="cuInit"))
    assert judged.outcome.status == "unknown"
