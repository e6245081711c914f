"""DDP507: the examined interpreter has no torch, or importing it fails."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told

INDEX = "https://download.pytorch.org/whl"


class TorchUnusable(Check):
    id, name = "DDP507", "torch-unusable"
    title = "torch is missing or cannot be imported"
    needs = (TorchRuntime,)
    also_reads = (TorchInstall,)
    acts_at = frozenset({Stage.NOT_STARTED, Stage.PYTHON})
    told = Told(
        because="torch or a library that it needs is missing or is not the one it was built with",
        fixes=(
            Fix(
                title="see the error by itself, without other libraries in the way",
                commands=(
                    "env -u LD_LIBRARY_PATH -u LD_PRELOAD python -c 'import torch; print(torch.__version__, torch.__file__)'",
                ),
                needs="nothing",
            ),
            Fix(
                title="install torch with its own libraries",
                commands=("pip install --force-reinstall torch",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        install, runtime = facts.first(TorchInstall), facts.first(TorchRuntime)
        if install is not None and not install.path:
            yield self.finding(
                f"{install.python} has no torch",
                because="no rank can start with this interpreter; torch may well be installed in another one",
                evidence=[install.evidence()],
                fixes=_install(install),
            )
        elif runtime is not None and runtime.outcome != "imported" and not runtime.given_up_early:
            yield self.finding(
                f"torch cannot be imported: {runtime.error}",
                because=_because(runtime),
                evidence=[runtime.evidence(), *([install.evidence()] if install else [])],
                fixes=_repair(install, runtime),
                # a slow file system looks the same as one that never answers
                confidence=Confidence.LIKELY if runtime.outcome == "timeout" else Confidence.CERTAIN,
            )


def _because(runtime: TorchRuntime) -> str:
    if "SIGILL" in runtime.error:
        return "this build of torch, or a library it loads, uses instructions that this CPU does not have"
    if runtime.outcome == "died":
        return "a library that the import loads ends the process, so every rank dies before it can say why"
    if runtime.outcome == "timeout":
        return (
            f"every rank stands in the import before it can call init_process_group; {runtime.seconds:.0f} s were given"
        )
    return "every rank fails at the import, before init_process_group"


def _install(install: TorchInstall) -> list[Fix]:
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


def _repair(install: TorchInstall | None, runtime: TorchRuntime) -> list[Fix]:
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
    if install is None:
        return [look]
    if not install.version and not re.search(r"/(site|dist)-packages/", install.path):
        found = install.path.removesuffix("/__init__.py")
        return [
            Fix(
                title="this is not PyTorch but something of the same name that is found first: move it away",
                commands=(f"mv {shlex.quote(found)} {shlex.quote(found + '.not-pytorch')}",),
            ),
            look,
        ]
    again = _reinstall(install)
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
