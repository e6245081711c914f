"""DDP507 on values; the live faults are in tests/live/test_torch_probe.py."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.software.torch_unusable import TorchUnusable

from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.model import Absent, Confidence

SITE = "/opt/env/lib/python3.11/site-packages"


def install(**changes: Any) -> TorchInstall:
    """A healthy CUDA build that pip can mend."""
    values: dict[str, Any] = {
        "source": "/opt/env/bin/python",
        "python": "/opt/env/bin/python",
        "path": f"{SITE}/torch/__init__.py",
        "version": "2.7.1+cu128",
        "installer": "pip",
    }
    return TorchInstall(**(values | changes))


def runtime(**changes: Any) -> TorchRuntime:
    return TorchRuntime(**({"source": "/opt/env/bin/python -c 'import torch'", "version": "2.7.1+cu128"} | changes))


def commands(*facts: Any) -> list[str]:
    (finding,) = run_check(TorchUnusable, *facts).findings
    return [command for fix in finding.fixes for command in fix.commands]


def test_hit_missing_with_each_way_to_install() -> None:
    judged = run_check(TorchUnusable, install(path="", version=""))
    assert judged.outcome.status == "hit"
    assert judged.findings[0].summary == "/opt/env/bin/python has no torch"
    assert "/opt/env/bin/python -m pip install torch" in commands(install(path=""))
    assert "uv pip install --python /opt/env/bin/python torch" in commands(install(path="", installer="uv"))
    assert "/opt/env/bin/python -m venv torch-env" in commands(install(path="", installer=""))


def test_hit_an_exception_is_mended_by_the_same_version_from_the_same_place() -> None:
    error = "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
    judged = run_check(TorchUnusable, install(), runtime(outcome="raised", error=error))
    (finding,) = judged.findings
    assert error in finding.summary and finding.confidence is Confidence.CERTAIN
    assert finding.fixes[0].commands == (
        "/opt/env/bin/python -m pip install --force-reinstall torch==2.7.1"
        " --index-url https://download.pytorch.org/whl/cu128",
    )


def test_hit_a_build_that_is_published_nowhere_is_not_reinstalled() -> None:
    facts = (install(version="2.6.0a0+ecf3bae40a.nv25.1"), runtime(outcome="died", error="import torch was killed"))
    assert commands(*facts) == ["/opt/env/bin/python -X faulthandler -c 'import torch'"]


def test_hit_something_else_called_torch_is_moved_away() -> None:
    facts = (install(path="/home/me/torch.py", version=""), runtime(outcome="raised", error="NameError: x"))
    assert commands(*facts)[0] == "mv /home/me/torch.py /home/me/torch.py.not-pytorch"
    folder = (install(path="/home/me/torch/__init__.py", version=""), runtime(outcome="raised", error="NameError: x"))
    assert commands(*folder)[0] == "mv /home/me/torch /home/me/torch.not-pytorch"


def test_hit_an_import_without_end_is_only_likely() -> None:
    judged = run_check(
        TorchUnusable, install(), runtime(outcome="timeout", error="import torch did not end in 58.0 s", seconds=58.0)
    )
    assert judged.findings[0].confidence is Confidence.LIKELY


def test_no_hit_where_the_import_had_too_little_time() -> None:
    absent = Absent(kind="TorchRuntime", status="timeout", reason="import torch did not end in 4.0 s")
    judged = run_check(TorchUnusable, install(), runtime(outcome="timeout", seconds=4.0), absent)
    assert judged.outcome.status == "unknown"


def test_clear() -> None:
    assert run_check(TorchUnusable, install(), runtime()).outcome.status == "clear"


def test_unknown_where_the_interpreter_could_not_be_asked() -> None:
    absent = Absent(kind="TorchRuntime", status="absent", reason="/opt/env/bin/python cannot be started")
    assert run_check(TorchUnusable, install(), absent).outcome.status == "unknown"
