"""The NCCL part of DDP501 on values, and two real wheels of one file: the fix as printed leaves the right one."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.software.version_mismatch import VersionMismatch

from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, Severity
from ddp_doctor.probes import interpreter

CU11, CU12 = "nvidia-nccl-cu11 2.21.5", "nvidia-nccl-cu12 2.27.5"


def install(**changes: Any) -> TorchInstall:
    values: dict[str, Any] = {
        "source": "/opt/env/bin/python",
        "python": "/opt/env/bin/python",
        "path": "/opt/env/lib/python3.11/site-packages/torch/__init__.py",
        "version": "2.9.1+cu128",
        "libnccl": "/opt/env/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
        "nccl_wheels": (CU12,),
        "needs_nccl": CU12,
        "nccl_owner": CU12,
        "installer": "pip",
    }
    return TorchInstall(**(values | changes))


def runtime(error: str = "") -> TorchRuntime:
    return TorchRuntime(outcome="raised" if error else "imported", error=error, source="/opt/env/bin/python")


def test_hit_a_library_without_a_function_that_torch_asks_for() -> None:
    error = "ImportError: /opt/env/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister"
    judged = run_check(VersionMismatch, install(libnccl="/usr/lib/libnccl.so.2", needs_nccl=""), runtime(error))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit" and finding.severity is Severity.ERROR
    assert "/usr/lib/libnccl.so.2" in finding.summary
    assert finding.fixes[0].commands == ("unset LD_PRELOAD LD_LIBRARY_PATH",)


def test_hit_the_file_of_another_wheel() -> None:
    judged = run_check(VersionMismatch, install(nccl_wheels=(CU11, CU12), nccl_owner=CU11), runtime())
    (finding,) = judged.findings
    assert finding.severity is Severity.WARNING
    assert finding.fixes[0].commands == (
        "/opt/env/bin/python -m pip uninstall -y nvidia-nccl-cu11",
        "/opt/env/bin/python -m pip install --force-reinstall --no-deps nvidia-nccl-cu12==2.27.5",
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nccl_wheels": (CU11, CU12)},
        {"nccl_wheels": ("nvidia-nccl-cu12 2.29.2",), "nccl_owner": "nvidia-nccl-cu12 2.29.2"},
        {"nccl_wheels": (CU11, CU12), "nccl_owner": ""},
        {"nccl_wheels": (), "needs_nccl": "", "nccl_owner": "", "libnccl": ""},
    ],
)
def test_no_finding(changes: dict[str, Any]) -> None:
    assert run_check(VersionMismatch, install(**changes), runtime()).findings == ()


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes], metadata: str = "") -> Path:
    """A wheel with these files, as a package index would serve it."""
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    content = files | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(data)}\n"
            archive.writestr(file, data)
        archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return path


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_the_printed_fix_leaves_the_wheel_that_torch_needs(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    build = ["gcc", "-shared", "-x", "c", "/dev/null"]
    nccl, cuda = libraries / "libnccl.so.2", libraries / "libtorch_cuda.so"
    subprocess.run([*build, "-Wl,-soname,libnccl.so.2", "-o", nccl], check=True)
    search = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib"
    subprocess.run([*build, "-Wl,--no-as-needed", search, "-x", "none", nccl, "-o", cuda], check=True)
    shared = "nvidia/nccl/lib/libnccl.so.2"
    torch = {
        "torch/__init__.py": b"",
        "torch/version.py": b"__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
        "torch/lib/libtorch_cuda.so": cuda.read_bytes(),
    }
    need = 'Requires-Dist: nvidia-nccl-cu12==2.27.5; platform_system == "Linux"\n'
    wheels = [
        wheel(tmp_path, "torch", "2.9.1", torch, need),
        wheel(tmp_path, "nvidia-nccl-cu12", "2.27.5", {shared: nccl.read_bytes()}),
        wheel(tmp_path, "nvidia-nccl-cu11", "2.21.5", {shared: b"older"}),
    ]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = str(tmp_path / "env/bin/python")
    # a constraint that holds for the whole test run must not forbid these wheels
    free = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    offline = free | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for one in wheels:
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", one], check=True, env=offline)

    (before,) = run_check(VersionMismatch, *interpreter.take(Host(20, python=python), Facts()), runtime()).findings
    assert "torch 2.9.1+cu128 needs nvidia-nccl-cu12 2.27.5" in before.summary
    for command in before.fixes[0].commands:
        subprocess.run(shlex.split(command), check=True, env=offline, capture_output=True)
    after = run_check(VersionMismatch, *interpreter.take(Host(20, python=python), Facts()), runtime())
    assert after.findings == ()
    (found,) = interpreter.take(Host(20, python=python), Facts())
    assert isinstance(found, TorchInstall) and found.nccl_owner == "nvidia-nccl-cu12 2.27.5"
