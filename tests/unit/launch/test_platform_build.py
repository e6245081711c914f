"""DDP113 on values."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.launch.platform_build import PlatformBuild
from gpu_facts import cuda

from ddp_doctor.facts.software import TorchRuntime
from ddp_doctor.model import Absent, Severity


def runtime(**changes: Any) -> TorchRuntime:
    """A published CPU wheel: no NCCL, and none needed."""
    values: dict[str, Any] = {"version": "2.7.1+cpu", "distributed": True, "gloo": True, "libuv": True}
    return TorchRuntime(**({"source": "/opt/env/bin/python -c 'import torch'"} | values | changes))


@pytest.mark.parametrize(
    ("changes", "words", "severity"),
    [
        ({"distributed": False, "gloo": False}, "without torch.distributed", Severity.ERROR),
        ({"gloo": False}, "without Gloo", Severity.ERROR),
        ({"gloo": False, "nccl_backend": True}, "without Gloo", Severity.WARNING),
        ({"libuv": False}, "without libuv", Severity.ERROR),
    ],
)
def test_hit(changes: dict[str, Any], words: str, severity: Severity) -> None:
    judged = run_check(PlatformBuild, runtime(**changes))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert words in finding.summary and finding.severity is severity


def test_clear_a_cpu_wheel() -> None:
    assert run_check(PlatformBuild, runtime()).outcome.status == "clear"


def test_hit_a_cpu_wheel_beside_gpus() -> None:
    (finding,) = run_check(PlatformBuild, runtime(), cuda(0, 1)).findings
    assert finding.severity is Severity.WARNING and "2 GPUs" in finding.summary
    assert finding.fixes[0].commands[0].endswith("torch --index-url https://download.pytorch.org/whl/cu126")


def test_clear_a_cpu_wheel_where_the_gpus_are_hidden_or_in_use_by_it() -> None:
    assert run_check(PlatformBuild, runtime(), cuda(mask="-1", code=100)).outcome.status == "clear"
    assert run_check(PlatformBuild, runtime(cuda="12.8"), cuda(0, 1)).outcome.status == "clear"


def test_clear_where_the_store_was_opened_without_asking_for_libuv() -> None:
    assert run_check(PlatformBuild, runtime(libuv=None)).outcome.status == "clear"


def test_a_torch_that_cannot_be_imported_is_another_matter() -> None:
    broken = TorchRuntime(outcome="raised", error="ImportError: no")
    assert run_check(PlatformBuild, broken).outcome.status == "not-applicable"


def test_unknown() -> None:
    absent = Absent(kind="TorchRuntime", status="absent", reason="cannot be started")
    assert run_check(PlatformBuild, absent).outcome.status == "unknown"
