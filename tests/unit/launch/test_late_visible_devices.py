from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.late_visible_devices import LateVisibleDevices
from script_cases import lint_text

from ddp_doctor.facts.script import MaskAssignment
from ddp_doctor.judge import Judgement, judge_one
from ddp_doctor.model import Absent, Confidence, Severity

HEAD = "import os, torch\nimport torch.distributed as dist\nrank = int(os.environ['LOCAL_RANK'])\n"
MASK = "os.environ['CUDA_VISIBLE_DEVICES'] = str(rank)\n"


def lint(body: str) -> Judgement:
    return judge_one(LateVisibleDevices(), lint_text(HEAD + body))


@pytest.mark.parametrize(
    "use",
    [
        "torch.ones(1).cuda()", "torch.zeros(1, device='cuda')", "torch.ones(1).to('cuda:0')", "torch.cuda.set_device(0)",
        "print(torch.cuda.get_device_name())", "torch.cuda.synchronize()",
    ],
)  # fmt: skip
def test_a_mask_after_any_use_of_cuda_is_ignored(use: str) -> None:
    judgement = lint(f"{use}\n{MASK}dist.init_process_group('nccl')\n")
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert "train.py:5" in finding.summary and "train.py:4" in finding.summary


@pytest.mark.parametrize(
    "before",
    [
        "",
        "torch.device('cuda')",
        "torch.cuda.manual_seed_all(1)",
        "torch.ones(1).to('cpu')",
        "torch.cuda.device_count()",
    ],
)
def test_what_initialises_nothing_leaves_it_clear(before: str) -> None:
    assert lint(f"{before}\n{MASK}dist.init_process_group('nccl')\n").outcome.status == "clear"


def test_the_same_mask_for_all_is_a_warning() -> None:
    (finding,) = lint("torch.cuda.init()\nos.environ['CUDA_VISIBLE_DEVICES'] = '1,2'\n").findings
    assert finding.severity is Severity.WARNING
    assert finding.fixes[0].commands == ("CUDA_VISIBLE_DEVICES=1,2 python train.py",)


def test_a_script_that_was_not_read_leaves_it_unknown() -> None:
    assert (
        run_check(LateVisibleDevices, Absent(kind=MaskAssignment.kind(), reason="no text")).outcome.status == "unknown"
    )
