"""DDP507: the examined interpreter has no torch, or importing it fails."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.host import Limit, Memory
from ddp_doctor.facts.launch import Setting
from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.software.refused import ended_by
from ddp_doctor_checks.software.torch_unusable_fixes import install_torch, repair, sent_by_somebody


class TorchUnusable(Check):
    id, name = "DDP507", "torch-unusable"
    title = "torch is missing or cannot be imported"
    needs = (TorchRuntime,)
    also_reads = (TorchInstall, Limit, Memory, Setting)
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

    def not_applicable(self, facts: Facts) -> str:
        """A limit or a setting that the import speaks of is the cause, and other checks name it."""
        runtime, limit = facts.first(TorchRuntime), ended_by(facts)
        if limit is not None:
            return f"the import was ended by a limit or lack of memory, DDP503: {limit.text()} ({limit.source})"
        for setting in facts[Setting]:
            if runtime is not None and setting.effect == "ends" and setting.name in runtime.error:
                return f"the import was ended by a setting, DDP118: {setting.text()} ({setting.source})"
        return ""

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        install, runtime = facts.first(TorchInstall), facts.first(TorchRuntime)
        if install is not None and not install.path:
            yield self.finding(
                f"{install.python} has no torch",
                because="no rank can start with this interpreter; torch may well be installed in another one",
                evidence=[install.evidence()],
                fixes=install_torch(install),
            )
        elif runtime is not None and runtime.outcome != "imported" and not runtime.given_up_early:
            yield self.finding(
                f"torch cannot be imported: {runtime.error}",
                because=_because(runtime),
                evidence=[runtime.evidence(), *([install.evidence()] if install else [])],
                fixes=repair(install, runtime),
                # a slow file system looks the same as one that never answers
                confidence=Confidence.LIKELY
                if runtime.outcome == "timeout" or sent_by_somebody(runtime)
                else Confidence.CERTAIN,
            )


def _because(runtime: TorchRuntime) -> str:
    if "SIGILL" in runtime.error:
        return "this build of torch, or a library it loads, uses instructions that this CPU does not have"
    if sent_by_somebody(runtime):
        return (
            "the kernel ends a process when memory runs out (the OOM killer, SIGKILL) or a limit is reached (SIGXCPU); a "
            "library does not send this signal to itself"
        )
    if runtime.outcome == "died":
        return "a library or a start-up hook that the import loads ends the process, so every rank dies before it can say why"
    if runtime.outcome == "timeout":
        return (
            f"every rank stands in the import before it can call init_process_group; {runtime.seconds:.0f} s were given"
        )
    return "every rank fails at the import, before init_process_group"
