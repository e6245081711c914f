"""Probes: from the host to raw facts, one module per source of evidence, never judging."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ddp_doctor.collect import Probe


def probes_for_run() -> tuple[Probe, ...]:
    """Every probe that examines this node: the `PROBES` of each module here."""
    found: list[Probe] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found += getattr(import_module(f"{__name__}.{module.name}"), "PROBES", ())
    return tuple(found)
