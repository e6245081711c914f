from __future__ import annotations

import msgspec
from ddp_doctor_checks.launch.duplicate_gpu import DuplicateGpu
from gpu_facts import cuda, judge_gpus

from ddp_doctor.facts.gpu import CudaView
from ddp_doctor.model import Absent, Subject


def seen_by(rank: int, *devices: int, host: str = "node-a") -> CudaView:
    return msgspec.structs.replace(cuda(*devices, mask="0"), subject=Subject(host=host, rank=rank))


def test_two_ranks_with_the_same_single_gpu() -> None:
    judged = judge_gpus(DuplicateGpu, seen_by(0, 0), seen_by(1, 0))
    assert judged.outcome.status == "hit"
    assert judged.findings[0].ranks == (0, 1)


def test_the_same_number_on_two_nodes_is_two_gpus() -> None:
    assert judge_gpus(DuplicateGpu, seen_by(0, 0), seen_by(1, 0, host="node-b")).outcome.status == "clear"


def test_ranks_that_see_all_gpus_choose_later() -> None:
    assert judge_gpus(DuplicateGpu, seen_by(0, 0, 1), seen_by(1, 0, 1)).outcome.status == "clear"


def test_one_rank_cannot_be_compared() -> None:
    assert judge_gpus(DuplicateGpu, seen_by(0, 0)).outcome.status == "not-applicable"


def test_a_rank_without_an_answer_leaves_it_unknown() -> None:
    absent = Absent(kind="CudaView", status="timeout", reason="cuInit: no answer")
    assert judge_gpus(DuplicateGpu, seen_by(0, 0), seen_by(1, 1), absent).outcome.status == "unknown"
