from __future__ import annotations

from pathlib import Path

import pytest
from checking import run_check
from ddp_doctor_checks.program.rank_conditional import RankConditional
from script_cases import apply, lint_text

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


LEAVING = """def evaluate(x):
    rank = dist.get_rank()
    if rank != 0:
        return
{between}    dist.all_reduce(x)
    print(x)
evaluate(torch.ones(1))
"""


def test_a_return_before_the_call_is_mended_by_the_call_before_the_return(tmp_path: Path) -> None:
    text = START + LEAVING.format(between="")
    (tmp_path / "train.py").write_text(text)
    ((fix,),) = [finding.fixes for finding in lint(LEAVING.format(between="")).findings]
    assert fix.diff is not None and "-    dist.all_reduce(x)" in fix.diff
    apply(fix.diff, tmp_path)
    mended = (tmp_path / "train.py").read_text()
    assert mended.index("all_reduce") < mended.index("if rank != 0") < mended.index("return")
    assert lint(mended, "").outcome.status == "clear"


@pytest.mark.parametrize("leave", ["return", "sys.exit()", "raise SystemExit"])
def test_the_lines_printed_for_a_call_behind_a_return_take_the_finding_away(leave: str) -> None:
    body = LEAVING.format(between="    x = x + 1\n").replace("return", leave)
    ((fix,),) = [finding.fixes for finding in lint(body, f"import sys\n{START}").findings]
    assert fix.diff is None
    assert fix.commands == ("dist.all_reduce(x)", "if rank != 0:", f"    {leave}")
    before, _, after = body.partition("    if rank != 0:")
    rest = after.partition("    dist.all_reduce(x)\n")[2]
    pasted = "".join(f"    {line}\n" for line in fix.commands)
    assert lint(f"import sys\n{START}{before}    x = x + 1\n{pasted}{rest}", "").outcome.status == "clear"
