"""`lint`: launch mistakes in source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.script import ScriptRead
from ddp_doctor.host import Host
from ddp_doctor.model import Report
from ddp_doctor.packs import load_packs
from ddp_doctor.probes.scripts import scripts_probe


def examine_scripts(out: Output, scripts: Sequence[Path], selection: Selection | None, timeout: float) -> Report:
    """What these scripts and folders of scripts do to a launch; nothing to examine where no Python file could be read.

    Where none could be parsed, having no verdict is not passed over.
    """
    report = examine(
        "lint",
        load_packs(),
        host=interrupts_end(Host(timeout, probe_seconds=timeout)),
        probes=(scripts_probe([str(script) for script in scripts]),),
        selection=selection,
        examined=lambda facts: bool(facts[ScriptRead]),
        started=out.started,
        progress=out.waiting,
        keep=out.keep,
    )
    out.needs_verdict = all(read.error for read in out.facts[ScriptRead])
    return report
