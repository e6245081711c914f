"""`run`: will DDP initialise on this node, from this shell."""

from __future__ import annotations

from pathlib import Path

from ddp_doctor.cli.output import Output
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.host import Host
from ddp_doctor.model import Facts, Report, Target
from ddp_doctor.packs import load_packs
from ddp_doctor.probes import probes_for_run


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
    host = Host(timeout, probe_seconds=probe_timeout, python=python)
    return examine(
        "run",
        load_packs(),
        host=host,
        probes=probes_for_run(),
        selection=selection,
        describe=lambda facts: _target(facts, host),
        started=out.started,
        progress=out.waiting,
    )


def _target(facts: Facts, host: Host) -> Target:
    runtime, install = facts.first(TorchRuntime), facts.first(TorchInstall)
    launcher = facts.first(Launcher)
    return Target(
        hosts=(host.name,),
        world_size=launcher.world_size if launcher else None,
        launcher=launcher.name if launcher else None,
        torch=(runtime and runtime.version) or (install and install.version) or None,
        nccl=(runtime and runtime.nccl) or None,
        python=host.python,
    )
