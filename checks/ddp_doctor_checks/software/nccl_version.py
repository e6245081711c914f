"""The part of DDP501 about NCCL: torch loads another libnccl than the one it was built for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.model import Check, Facts, Finding, Fix, Severity

MISSING_SYMBOL = re.compile(r"undefined symbol: nccl\w+")


def wrong_nccl(check: Check, facts: Facts) -> Iterator[Finding]:
    """Findings of `check` on a libnccl that lacks a function torch asks for, or that is another wheel's."""
    runtime, install = facts.first(TorchRuntime), facts.first(TorchInstall)
    if install is None:
        return
    missing = MISSING_SYMBOL.search(runtime.error) if runtime else None
    loaded = install.evidence(f"loads {install.libnccl}; installed: {', '.join(install.nccl_wheels) or 'no wheel'}")
    if runtime and missing:
        yield check.finding(
            f"torch {install.version} needs a newer NCCL than the {install.libnccl or 'one'} it loads",
            because="the import asks that library for a function it does not have, so no rank can start",
            evidence=[runtime.evidence(), loaded],
            fixes=_fixes(install),
        )
    elif _overwritten(install):
        yield check.finding(
            f"torch {install.version} needs {install.needs_nccl}, but the libnccl.so.2 it loads is that of "
            f"{install.nccl_owner}",
            because="both wheels install the same file and the last one won; where another node installed them in "
            "another order the job runs two versions of NCCL, which hangs without a message",
            evidence=[loaded],
            fixes=_fixes(install),
            severity=Severity.WARNING,
        )


def _overwritten(install: TorchInstall) -> bool:
    """Whether the wheel that torch declares is installed while the file it brought is another wheel's.

    A newer release of the same wheel is not meant: people upgrade NCCL on purpose.
    """
    return (
        install.needs_nccl in install.nccl_wheels
        and bool(install.nccl_owner)
        and install.nccl_owner != install.needs_nccl
    )


def _fixes(install: TorchInstall) -> list[Fix]:
    python = shlex.quote(install.python)
    pip = f"uv pip {{}} --python {python}" if install.installer == "uv" else f"{python} -m pip {{}}"
    if not install.needs_nccl or not install.installer:
        return [
            Fix(
                title="start the job without the variable that puts this library first",
                commands=("unset LD_PRELOAD LD_LIBRARY_PATH",),
            ),
            Fix(
                title="if it is still found, see where",
                commands=(f"LD_DEBUG=libs {python} -c 'import torch' 2>&1 | grep libnccl",),
                needs="nothing",
            ),
        ]
    name, _, version = install.needs_nccl.partition(" ")
    others = [wheel.partition(" ")[0] for wheel in install.nccl_wheels if not wheel.startswith(f"{name} ")]
    yes = "" if install.installer == "uv" else "-y "
    again = "--reinstall" if install.installer == "uv" else "--force-reinstall"
    commands = [f"{pip.format('uninstall')} {yes}{other}" for other in others]
    commands.append(f"{pip.format('install')} {again} --no-deps {name}=={version}")
    title = "keep one NCCL, the one torch needs" + (
        " (the other wheel takes the shared file with it)" if others else ""
    )
    return [Fix(title=title, commands=tuple(commands))]
