"""`run`: will DDP initialise on this node, from this shell."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import typer

from ddp_doctor.cli.output import Output
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.host import Host, Options
from ddp_doctor.model import Facts, Report, Target
from ddp_doctor.packs import load_packs
from ddp_doctor.probes import probes_for_run
from ddp_doctor.probes.interpreter import CHOICE_SECONDS, NoInterpreter, choose_python


def examine_node(
    out: Output,
    *,
    nproc: int | None,
    script: Path | None,
    active: str,
    selection: Selection,
    timeout: float,
    probe_timeout: float,
    python: str | None,
) -> Report:
    """The report on this node, this environment and, where given, the script."""
    try:
        choice = choose_python(os.environ, python, seconds=min(CHOICE_SECONDS, timeout / 2))
    except NoInterpreter as refusal:
        raise typer.BadParameter(str(refusal)) from None
    host = Host(
        max(0.1, timeout - (time.monotonic() - out.started)),
        probe_seconds=probe_timeout,
        python=choice.python,
        options=msgspec.convert({"nproc": nproc, "active": active}, Options),
    )
    return examine(
        "run",
        load_packs(),
        host=host,
        probes=probes_for_run(),
        selection=selection,
        describe=lambda facts: _target(facts, host, "; ".join((choice.why, *choice.passed_over))),
        started=out.started,
        progress=out.waiting,
    )


def _target(facts: Facts, host: Host, why_python: str) -> Target:
    runtime, install = facts.first(TorchRuntime), facts.first(TorchInstall)
    launcher = facts.first(Launcher)
    return Target(
        hosts=(host.name,),
        world_size=launcher.world_size if launcher else None,
        launcher=launcher.name if launcher else None,
        torch=(runtime and runtime.version) or (install and install.version) or None,
        nccl=(runtime and runtime.nccl) or None,
        python=host.python,
        why_python=why_python,
    )
