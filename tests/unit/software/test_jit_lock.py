"""DDP504 on values."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.software.jit_lock import JitLock

from ddp_doctor.facts.host import ExtensionCache, ExtensionLock
from ddp_doctor.model import Absent, Confidence

ROOT = "/home/me/.cache/torch_extensions"


def cache(minutes: float, holder: int | None = None, **changes: Any) -> ExtensionCache:
    lock = ExtensionLock(path=f"{ROOT}/py311_cu121/fused_adam/lock", age_seconds=60 * minutes, holder=holder)
    return ExtensionCache(**({"source": ROOT, "path": ROOT, "locks": (lock,), "file_system": "ext4"} | changes))


def test_hit() -> None:
    judged = run_check(JitLock, cache(90))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.fixes[0].commands == (f"rm {ROOT}/py311_cu121/fused_adam/lock",)
    assert finding.confidence is Confidence.LIKELY


def test_a_young_lock_on_a_shared_file_system_is_only_possible() -> None:
    (finding,) = run_check(JitLock, cache(20, file_system="nfs4")).findings
    assert finding.confidence is Confidence.POSSIBLE


@pytest.mark.parametrize("facts", [cache(90, holder=4711), cache(1), cache(90, locks=()), cache(90, complete=False)])
def test_near_miss(facts: ExtensionCache) -> None:
    assert run_check(JitLock, facts).outcome.status == "clear"


def test_unknown_where_the_cache_does_not_answer() -> None:
    judged = run_check(JitLock, Absent(kind="ExtensionCache", status="timeout", reason="no answer in 5.0 s"))
    assert judged.outcome.status == "unknown"
