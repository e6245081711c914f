"""What to type where torch cannot be imported."""

from __future__ import annotations

import re
import shlex

from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.model import Fix

INDEX = "https://download.pytorch.org/whl"
LIBRARY_SIGNALS = ("SIGSEGV", "SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGTRAP")
"""What code in the process brings on itself; every other signal is sent by somebody else."""
BROKEN_FILE = re.compile(
    r"\.so\b|shared object|undefined symbol|bad marshal data|null bytes"
    r"|No such file or directory: '[^']*/(site|dist)-packages/"
)
BROKEN_IN_TORCH = re.compile(r"/(site|dist)-packages/(torch|nvidia)/[^()]*:\d+\)$")
PYTHON_ERRORS = re.compile(r"(ImportError|ModuleNotFoundError|AttributeError|NameError|SyntaxError|IndentationError):")


def sent_by_somebody(runtime: TorchRuntime) -> bool:
    """Whether a signal ended the import that no library brings on itself."""
    signal = re.search(r"\bSIG[A-Z0-9]+\b", runtime.error)
    return runtime.outcome == "died" and signal is not None and signal[0] not in LIBRARY_SIGNALS


def _speaks_of_a_broken_file(runtime: TorchRuntime) -> bool:
    """Whether installing torch again can help: a crash of a library, or an error about a file of torch."""
    if runtime.outcome == "died":
        return any(signal in runtime.error for signal in LIBRARY_SIGNALS)
    in_torch = BROKEN_IN_TORCH.search(runtime.error) and PYTHON_ERRORS.match(runtime.error)
    missing = re.match(r"ModuleNotFoundError: No module named '(torch|nvidia)\b", runtime.error)
    return bool(BROKEN_FILE.search(runtime.error) or in_torch or missing)


def _without_variables(runtime: TorchRuntime, python: str) -> list[Fix]:
    named = sorted(set(re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", runtime.error)))
    if not named and not runtime.python_variables:
        return []
    without = " ".join(f"-u {name}" for name in (*runtime.python_variables, *named))
    return [
        Fix(
            title="see whether it comes from the environment: without these variables",
            commands=(f"env {without} {python} -c 'import torch'",),
            needs="nothing",
        )
    ]


def install_torch(install: TorchInstall) -> list[Fix]:
    """Another interpreter, or torch for this one."""
    python = shlex.quote(install.python)
    here = {
        "pip": (f"{python} -m pip install torch",),
        "uv": (f"uv pip install --python {python} torch",),
        "": (
            f"{python} -m venv torch-env",
            "torch-env/bin/python -m pip install torch",
            "ddp-doctor run --python torch-env/bin/python",
        ),
    }[install.installer]
    return [
        Fix(
            title="examine the interpreter that trains: activate its environment, and",
            commands=('ddp-doctor run --python "$(command -v python)"',),
            needs="nothing",
        ),
        Fix(title="or install torch", commands=here),
    ]


def repair(install: TorchInstall | None, runtime: TorchRuntime) -> list[Fix]:
    """What can make the import work again, and the command that shows its whole error."""
    python = shlex.quote(install.python if install else runtime.source.partition(" ")[0])
    look = Fix(title="see the whole error", commands=(f"{python} -X faulthandler -c 'import torch'",), needs="nothing")
    if runtime.outcome == "timeout":
        longer = max(300, 3 * int(runtime.seconds))
        return [
            Fix(
                title="if it is only slow (a first import from a network file system), give it more time",
                commands=(f"ddp-doctor run --timeout {longer}",),
                needs="nothing",
            ),
            look,
        ]
    if sent_by_somebody(runtime):
        return [
            Fix(
                title="see whether it was the OOM killer, and which limits this shell has",
                commands=("sudo dmesg -T | grep -iE 'killed process|oom'; ulimit -t -v -m -H; ulimit -t -v -m -S",),
                needs="nothing",
            ),
            look,
        ]
    others = [] if _speaks_of_a_broken_file(runtime) else _without_variables(runtime, python)
    if install is None:
        return [*others, look]
    if not install.version and not re.search(r"/(site|dist)-packages/", install.path):
        found = install.path.removesuffix("/__init__.py")
        return [
            Fix(
                title="this is not PyTorch but something of the same name that is found first: move it away",
                commands=(f"mv {shlex.quote(found)} {shlex.quote(found + '.not-pytorch')}",),
            ),
            look,
        ]
    again = _reinstall(install) if _speaks_of_a_broken_file(runtime) else None
    if again is None:
        return [*others, look]
    return [*([again] if again else []), look]


def _reinstall(install: TorchInstall) -> Fix | None:
    """The same version from the place it is published at; None for a build that is published nowhere."""
    version, _, build = install.version.partition("+")
    if (
        not install.installer
        or not re.fullmatch(r"[\d.]*", version)
        or not re.fullmatch(r"(cpu|cu\d+|rocm[\d.]+)?", build)
    ):
        return None
    what = f"torch=={version}" if version else "torch"
    python = shlex.quote(install.python)
    command = {
        "pip": f"{python} -m pip install --force-reinstall {what}",
        "uv": f"uv pip install --python {python} --reinstall {what}",
    }[install.installer]
    where = f" --index-url {INDEX}/{build}" if build else ""
    return Fix(title="install the same version again, with all that it needs", commands=(command + where,))
