from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.launch.spawn_guard import SpawnGuard
from script_cases import lint_text

from ddp_doctor.facts.script import Place, SpawnCall
from ddp_doctor.judge import judge_one
from ddp_doctor.model import Absent, Confidence, Severity

HEAD = "import torch.multiprocessing as mp\nimport torch.distributed as dist\ndef worker(rank):\n    dist.barrier()\n"


def test_a_spawn_at_the_top_level_is_an_error_with_a_diff() -> None:
    judgement = judge_one(SpawnGuard(), lint_text(f"{HEAD}mp.spawn(worker, nprocs=2)\n"))
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert '+if __name__ == "__main__":\n+    mp.spawn(worker, nprocs=2)' in (finding.fixes[0].diff or "")


def test_a_process_of_the_default_method_is_a_note() -> None:
    (finding,) = judge_one(SpawnGuard(), lint_text(f"{HEAD}mp.Process(target=worker, args=(0,)).start()\n")).findings
    assert (finding.severity, finding.confidence) == (Severity.NOTE, Confidence.LIKELY)


def test_a_call_under_the_guard_stays_clear() -> None:
    text = f"{HEAD}def main():\n    mp.spawn(worker, nprocs=2)\nif '__main__' == __name__:\n    main()\n"
    assert judge_one(SpawnGuard(), lint_text(text)).outcome.status == "clear"


def test_a_call_that_no_diff_can_guard_still_has_a_fix() -> None:
    call = SpawnCall(at=Place(path="a.py", line=2, code="mp.spawn(f)"), api="mp.spawn", method="spawn", guarded=False)
    (finding,) = run_check(SpawnGuard, call).findings
    assert finding.fixes[0].commands == ('if __name__ == "__main__":', "    mp.spawn(f)")


def test_a_script_that_was_not_read_leaves_it_unknown() -> None:
    assert run_check(SpawnGuard, Absent(kind=SpawnCall.kind(), reason="no text")).outcome.status == "unknown"
