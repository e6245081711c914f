from __future__ import annotations

from ddp_doctor_checks.gpu.gpu_isolation import GpuIsolation
from gpu_facts import cuda, judge_gpus, launcher, node, state

from ddp_doctor.model import Absent, Severity

SHOWN_ONE = state(gpus=1)


def test_two_ranks_and_one_of_two_gpus_shown() -> None:
    bound = node(variables={"SLURM_GPUS_PER_TASK": "1"})
    judged = judge_gpus(GpuIsolation, SHOWN_ONE, cuda(0), launcher(2), bound)
    assert judged.outcome.status == "hit"
    found = judged.findings[0]
    assert found.severity is Severity.NOTE
    assert any("SLURM_GPUS_PER_TASK=1" in item.value for item in found.evidence)


def test_one_rank_needs_no_other_gpu() -> None:
    assert judge_gpus(GpuIsolation, SHOWN_ONE, cuda(0), launcher(1)).outcome.status == "clear"


def test_a_leaked_variable_is_no_rank() -> None:
    assert judge_gpus(GpuIsolation, SHOWN_ONE, cuda(0), launcher(2, alive=False)).outcome.status == "clear"


def test_without_launch_variables_it_cannot_say() -> None:
    judged = judge_gpus(GpuIsolation, Absent(kind="Launcher", status="denied", reason="cannot read the environment"))
    assert judged.outcome.status == "unknown"
