from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.program.subgroup_misuse import SubgroupMisuse
from script_cases import lint_text

from ddp_doctor.facts.script import GroupCreation
from ddp_doctor.judge import Judgement, judge_one
from ddp_doctor.model import Absent, Severity

START = "import torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"


def lint(body: str) -> Judgement:
    return judge_one(SubgroupMisuse(), lint_text(START + body))


def test_a_group_made_by_its_members_only_is_an_error() -> None:
    judgement = lint("if rank < 2:\n    g = dist.new_group([0, 1])\n    dist.barrier(g)\n")
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert finding.severity is Severity.ERROR
    assert "only some ranks" in finding.summary
    assert "+g = dist.new_group([0, 1])\n" in (finding.fixes[0].diff or "")


def test_members_that_differ_by_rank_are_an_error() -> None:
    (finding,) = lint("g = dist.new_group([rank, (rank + 1) % dist.get_world_size()])\n").findings
    assert "rank 0 names [0, 1]; rank 1 names [1, 2]" in finding.summary
    assert finding.fixes[0].commands


def test_all_ranks_making_all_groups_stays_clear() -> None:
    body = "groups = [dist.new_group(m) for m in ([0, 1], [2, 3])]\nmine = groups[rank // 2 % 2]\ndist.barrier(mine)\n"
    assert lint(body).outcome.status == "clear"


def test_a_script_that_was_not_read_leaves_it_unknown() -> None:
    absent = Absent(kind=GroupCreation.kind(), reason="no text")
    assert run_check(SubgroupMisuse, absent).outcome.status == "unknown"
