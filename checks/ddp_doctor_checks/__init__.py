"""Our pack: one failure mode per file, in the area where the fault lives. A file in an area is its own registration."""

from __future__ import annotations

import importlib.resources
import pkgutil
from collections.abc import Iterator
from importlib import import_module

from ddp_doctor.model import Check
from ddp_doctor.packs import Pack
from ddp_doctor.signatures import read_separators
from ddp_doctor_checks.headlines import HEADLINES

AREAS = ("launch", "rendezvous", "network", "gpu", "software", "program")


def check_types() -> Iterator[type[Check]]:
    """Every check class of every area."""
    for area in AREAS:
        package = import_module(f"{__name__}.{area}")
        for module in pkgutil.iter_modules(package.__path__):
            loaded = import_module(f"{package.__name__}.{module.name}")
            for value in vars(loaded).values():
                if isinstance(value, type) and issubclass(value, Check) and value.__module__ == loaded.__name__:
                    yield value


def pack() -> Pack:
    """The pack, as `ddp_doctor.packs.load_pack` expects it."""
    here = importlib.resources.files(__name__)
    return Pack(
        checks=tuple(check_types()),
        signatures=(here.joinpath("signatures"),),
        separators=read_separators(here.joinpath("separators.toml")),
        headlines=HEADLINES,
    )
