from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.launch.fork_after_cuda import ForkAfterCuda
from script_cases import lint_text

from ddp_doctor.facts.script import ForkStart, Place
from ddp_doctor.judge import judge_one
from ddp_doctor.model import Absent, Confidence, Severity

PARENT = Place(path="train.py", line=3, code="model.cuda()")
FORK = Place(path="train.py", line=9, code="child.start()")
CHILD = Place(path="train.py", line=5, code="x.cuda()")


def fork(**kwargs: object) -> ForkStart:
    given = {"at": FORK, "api": "multiprocessing.Process", "parent": PARENT, "parent_call": ".cuda()", "child": CHILD}
    return ForkStart(**{**given, "child_call": ".cuda()", "proven": True, "source": FORK.source, **kwargs})  # type: ignore[arg-type]


def test_a_fork_after_cuda_is_an_error() -> None:
    judgement = run_check(ForkAfterCuda, fork())
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert [evidence.source for evidence in finding.evidence] == ["train.py:9", "train.py:3", "train.py:5"]


def test_merely_asking_is_a_warning_and_the_default_method_is_not_certain() -> None:
    (asked,) = run_check(ForkAfterCuda, fork(only_asked=True, parent_call="torch.cuda.is_available")).findings
    assert (asked.severity, asked.confidence) == (Severity.WARNING, Confidence.LIKELY)
    (default,) = run_check(ForkAfterCuda, fork(method="default")).findings
    assert (default.severity, default.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert "3.13" in default.summary


def test_a_child_that_leaves_cuda_alone_stays_clear() -> None:
    text = "import os, torch\ntorch.cuda.init()\nif os.fork() == 0:\n    print('tokenise')\n"
    assert judge_one(ForkAfterCuda(), lint_text(text)).outcome.status == "clear"


def test_a_script_that_was_not_read_leaves_it_unknown() -> None:
    absent = Absent(kind=ForkStart.kind(), reason="train.py: line 3 is Python 2")
    assert run_check(ForkAfterCuda, absent).outcome.status == "unknown"
