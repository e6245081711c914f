"""`run`: will DDP initialise on this node, from this shell."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.gpu import DriverGpu, DriverState
from ddp_doctor.facts.launch import Launcher, Variable
from ddp_doctor.facts.p2p import PairRoute
from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.host import Host, Options
from ddp_doctor.interpret.launcher import OWN_RANKS, started_by
from ddp_doctor.model import Facts, GpuPair, Report, Target
from ddp_doctor.packs import load_packs
from ddp_doctor.probes import probes_for_run
from ddp_doctor.probes.interpreter import CHOICE_SECONDS, Choice, NoInterpreter, choose_python
from ddp_doctor.probes.scripts import scripts_probe


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
    host = interrupts_end(
        Host(
            max(0.0, timeout - (time.monotonic() - out.started)),
            probe_seconds=probe_timeout,
            python=choice.python,
            options=msgspec.convert({"nproc": nproc, "active": active}, Options),
        )
    )
    return examine(
        "run",
        load_packs(),
        host=host,
        probes=(*probes_for_run(), *((scripts_probe([str(script)]),) if script else ())),
        selection=selection,
        describe=lambda facts: _target(facts, host, choice),
        pairs=_pairs,
        started=out.started,
        progress=out.waiting,
        keep=out.keep,
    )


def _pairs(facts: Facts) -> Iterator[GpuPair]:
    for route in facts[PairRoute]:
        yield GpuPair(
            host=route.subject.host,
            first=route.first,
            second=route.second,
            route=route.route,
            link=route.link or "",
            why=route.why,
        )


def _target(facts: Facts, host: Host, choice: Choice) -> Target:
    runtime, install = facts.first(TorchRuntime), facts.first(TorchInstall)
    launcher = started_by(facts)
    gpus = facts[DriverGpu]
    names = {gpu.name for gpu in gpus if gpu.name}
    own = choice.python == sys.executable and not choice.passed_over
    return Target(
        hosts=(host.name,),
        world_size=launcher.world_size if launcher else None,
        launcher=launcher.name if launcher else None,
        rank_variables=any(variable.name in OWN_RANKS for variable in facts[Variable])
        or any(found.rank is not None for found in facts[Launcher]),
        torch=(runtime and runtime.version) or (install and install.version) or None,
        nccl=(runtime and runtime.nccl) or None,
        gpus=len(gpus) if gpus or facts.first(DriverState) else None,
        gpu_name=names.pop() if len(names) == 1 else None,
        python=choice.python,
        why_python=None if own else "; ".join((choice.why, *choice.passed_over)),
    )
