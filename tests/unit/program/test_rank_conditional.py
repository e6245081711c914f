from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.program.rank_conditional import RankConditional
from script_cases import lint_text

from ddp_doctor.facts.script import ConditionalCollective
from ddp_doctor.judge import Judgement, judge_one
from ddp_doctor.model import Absent, Confidence, Severity

START = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"


def lint(body: str, start: str = START) -> Judgement:
    return judge_one(RankConditional(), lint_text(start + body))


def test_a_collective_under_a_rank_condition_is_an_error_and_moves_out() -> None:
    judgement = lint("if dist.get_rank() == 0:\n    print('save')\n    dist.barrier()\n")
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert [evidence.source for evidence in finding.evidence] == ["train.py:6", "train.py:4"]
    assert "-    dist.barrier()\n+dist.barrier()" in (finding.fixes[0].diff or "")


def test_what_the_condition_computes_cannot_move_out() -> None:
    (finding,) = lint("if dist.get_rank() == 0:\n    x = torch.ones(1)\n    dist.all_reduce(x)\n").findings
    assert finding.fixes[0].diff is None
    assert "dist.all_reduce(x)" in finding.fixes[0].commands


def test_a_rank_known_by_name_or_an_unknown_call_is_only_likely() -> None:
    (by_name,) = lint("def f(rank):\n    if rank == 0:\n        dist.barrier()\n").findings
    assert by_name.confidence is Confidence.LIKELY
    (opaque,) = lint("import mine\nmine.prepare()\nif dist.get_rank() == 0:\n    dist.barrier()\n").findings
    assert opaque.confidence is Confidence.LIKELY


def test_only_the_first_call_under_a_condition_is_told() -> None:
    assert len(lint("if dist.get_rank() == 0:\n    dist.barrier()\n    dist.barrier()\n").findings) == 1


def test_both_sides_calling_it_stays_clear() -> None:
    body = (
        "x = torch.ones(1)\nif dist.get_rank() == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.broadcast(x, src=0)\n"
    )
    assert lint(body).outcome.status == "clear"


def test_a_script_that_was_not_read_leaves_it_unknown() -> None:
    absent = Absent(kind=ConditionalCollective.kind(), reason="no text")
    assert run_check(RankConditional, absent).outcome.status == "unknown"
