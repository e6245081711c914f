"""DDP507 on values; the live faults are in tests/live/test_torch_probe.py."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.software.torch_unusable import TorchUnusable

from ddp_doctor.facts.launch import Setting
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


def test_hit_a_killed_import_is_no_fault_of_a_library() -> None:
    judged = run_check(TorchUnusable, install(), runtime(outcome="died", error="import torch was killed by SIGKILL"))
    (finding,) = judged.findings
    assert finding.confidence is Confidence.LIKELY and "OOM killer" in finding.because
    assert not [command for fix in finding.fixes for command in fix.commands if "reinstall" in command]
    crash = runtime(outcome="died", error="import torch was killed by SIGSEGV")
    assert "--force-reinstall" in commands(install(), crash)[0]


def test_hit_what_the_environment_makes_of_the_import_is_not_mended_by_a_reinstall() -> None:
    error = "DeprecationWarning: ast.Str is deprecated (/opt/env/lib/python3.11/site-packages/x.py:3)"
    seen = commands(install(), runtime(outcome="raised", error=error, python_variables=("PYTHONWARNINGS",)))
    assert seen[0] == "env -u PYTHONWARNINGS /opt/env/bin/python -c 'import torch'"
    assert not [command for command in seen if "reinstall" in command]
    (finding,) = run_check(TorchUnusable, install(), runtime(outcome="raised", error=error)).findings
    assert "site-packages/x.py:3" in finding.summary


def test_not_applicable_where_a_setting_ends_the_import() -> None:
    setting = Setting(source="environment", name="TORCH_DISTRIBUTED_DEBUG", value="1", effect="ends", meaning="it ends")
    error = "ValueError: The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL."
    judged = run_check(TorchUnusable, install(), runtime(outcome="raised", error=error), setting)
    assert judged.outcome.status == "not-applicable" and "DDP118" in judged.outcome.reason
    other = runtime(outcome="raised", error="ImportError: libcudnn.so.9: cannot open shared object file")
    assert run_check(TorchUnusable, install(), other, setting).outcome.status == "hit"
