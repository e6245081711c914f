from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.duplicate_rank import DuplicateRank
from script_cases import lint_text

from ddp_doctor.facts.script import GroupStart
from ddp_doctor.judge import Judgement, judge_one
from ddp_doctor.model import Absent, Confidence, Severity


def lint(body: str) -> Judgement:
    return judge_one(DuplicateRank(), lint_text(f"import os, sys\nimport torch.distributed as dist\n{body}"))


def test_a_literal_rank_in_a_launched_script_is_a_warning() -> None:
    judgement = lint("dist.init_process_group('gloo', rank=0, world_size=int(os.environ['WORLD_SIZE']))\n")
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.LIKELY)
    assert 'rank=int(os.environ["RANK"])' in (finding.fixes[0].diff or "")


def test_children_of_one_rank_are_an_error() -> None:
    body = (
        "import torch.multiprocessing as mp\n"
        "def w(i):\n    os.environ['RANK'] = '1'\n    dist.init_process_group('gloo', world_size=2)\n"
        "if __name__ == '__main__':\n    mp.spawn(w, nprocs=2)\n"
    )
    (finding,) = lint(body).findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert "rank 1" in finding.summary and "train.py:5" in finding.summary


@pytest.mark.parametrize(
    "body",
    [
        "dist.init_process_group('gloo', rank=0, world_size=1)\n",
        "os.environ['RANK'], os.environ['WORLD_SIZE'] = '0', '1'\ndist.init_process_group('gloo')\n",
        "os.environ.setdefault('RANK', '0')\ndist.init_process_group('gloo')\n",
        "if 'RANK' not in os.environ:\n    os.environ['RANK'] = '0'\ndist.init_process_group('gloo')\n",
        "if sys.argv[1] == 'a':\n    dist.init_process_group('gloo', rank=0, world_size=2)\n"
        "else:\n    dist.init_process_group('gloo', rank=1, world_size=2)\n",
        "dist.init_process_group('gloo', rank=int(sys.argv[1]), world_size=2)\n",
        "dist.init_process_group('gloo', rank=-1, world_size=-1)\n",
        "dist.init_process_group('fake', rank=0, world_size=8)\n",
    ],
)
def test_a_rank_of_its_own_or_a_group_of_one_stays_clear(body: str) -> None:
    assert lint(body).outcome.status == "clear"


def test_a_script_that_was_not_read_leaves_it_unknown() -> None:
    assert run_check(DuplicateRank, Absent(kind=GroupStart.kind(), reason="no text")).outcome.status == "unknown"


def test_a_rank_set_in_the_environment_is_deleted_and_not_read_back() -> None:
    (finding,) = lint('os.environ["RANK"] = "0"\ndist.init_process_group("gloo")\n').findings
    assert '-os.environ["RANK"] = "0"' in (finding.fixes[0].diff or "")
    (finding,) = lint('os.environ.update({"RANK": "0"})\ndist.init_process_group("gloo")\n').findings
    assert "take RANK out of train.py:3" in finding.fixes[0].title
    assert finding.fixes[0].commands == ("${EDITOR:-vi} +3 train.py",)
