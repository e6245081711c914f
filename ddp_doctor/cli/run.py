"""`run`: will DDP initialise on this node, from this shell."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping

import msgspec
import typer

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import interrupts_end
from ddp_doctor.cli.wish import Wish
from ddp_doctor.collect import Probe
from ddp_doctor.examine import examine
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


def examine_node(out: Output, wish: Wish) -> Report:
    """The report on this node, this environment and, where given, the script."""
    choice, host = open_host(out, wish, os.environ)
    interrupts_end(host)
    return examine(
        "run",
        load_packs(),
        host=host,
        probes=probes_of(wish),
        selection=wish.selection,
        describe=lambda facts: target(facts, (host.name,), choice),
        pairs=pairs,
        started=out.started,
        progress=out.waiting,
        keep=out.keep,
    )


def open_host(out: Output, wish: Wish, environ: Mapping[str, str]) -> tuple[Choice, Host]:
    """The interpreter whose torch is examined, and the door to this machine with such an environment."""
    try:
        choice = choose_python(environ, wish.python, seconds=min(CHOICE_SECONDS, wish.timeout / 2))
    except NoInterpreter as refusal:
        raise typer.BadParameter(str(refusal)) from None
    host = Host(
        max(0.0, wish.timeout - (time.monotonic() - out.started)),
        probe_seconds=wish.probe_timeout,
        environ=environ,
        python=choice.python,
        options=msgspec.convert({"nproc": wish.nproc, "active": wish.active}, Options),
    )
    return choice, host


def probes_of(wish: Wish) -> tuple[Probe, ...]:
    """The probes of a node, and what reads the script where one was given."""
    return (*probes_for_run(), *((scripts_probe([str(wish.script)]),) if wish.script else ()))


def pairs(facts: Facts) -> Iterator[GpuPair]:
    """How the GPUs of each host are joined."""
    for route in facts[PairRoute]:
        yield GpuPair(
            host=route.subject.host,
            first=route.first,
            second=route.second,
            route=route.route,
            link=route.link or "",
            why=route.why,
        )


def target(facts: Facts, hosts: tuple[str, ...], choice: Choice | None) -> Target:
    """What was examined; `choice` is None where the examined interpreter was chosen elsewhere."""
    runtime, install = facts.first(TorchRuntime), facts.first(TorchInstall)
    launcher = started_by(facts)
    gpus = facts[DriverGpu]
    names = {gpu.name for gpu in gpus if gpu.name}
    own = choice is None or (choice.python == sys.executable and not choice.passed_over)
    return Target(
        hosts=hosts,
        world_size=launcher.world_size if launcher else None,
        launcher=launcher.name if launcher else None,
        rank_variables=any(variable.name in OWN_RANKS for variable in facts[Variable])
        or any(found.rank is not None for found in facts[Launcher]),
        torch=(runtime and runtime.version) or (install and install.version) or None,
        nccl=(runtime and runtime.nccl) or None,
        gpus=len(gpus) if gpus or facts.first(DriverState) else None,
        gpu_name=names.pop() if len(names) == 1 else None,
        python=choice.python if choice else None,
        why_python=None if own or choice is None else "; ".join((choice.why, *choice.passed_over)),
    )
