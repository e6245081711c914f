"""What checks there are: the table, the page of one, and the selection of some."""

from __future__ import annotations

import difflib
import importlib.resources
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import typer

from ddp_doctor.examine import Selection
from ddp_doctor.model import Check
from ddp_doctor.packs import Loaded, load_packs, page_of


def selection(select: Iterable[str], ignore: dict[str, str]) -> Selection:
    """The selection, after making sure that each entry names something. Raises a usage error otherwise."""
    chosen = Selection(select=tuple(select), ignore=ignore)
    entries = [*chosen.select, *chosen.ignore]
    if entries:
        checks = load_packs().checks()
        for entry in entries:
            if not any(check.name == entry.lower() or check.id.startswith(entry.upper()) for check in checks):
                raise typer.BadParameter(f"no check is called {entry}{_near(entry, checks)}")
    return chosen


def list_checks(*, as_json: bool) -> None:
    """Print the table of checks: id, name, title and the pack that brought it."""
    loaded = load_packs()
    if as_json:
        rows = [
            {"id": check.id, "name": check.name, "title": check.title, "pack": loaded.owners[check.id]}
            for check in loaded.checks()
        ]
        show(json.dumps(rows, indent=1))
    else:
        checks = loaded.checks()
        width = max(len(check.name) for check in checks)
        show("\n".join(f"{check.id}  {check.name.ljust(width)}  {check.title}" for check in checks))
    _complain(loaded)


class Page(NamedTuple):
    """What there is to read about one check."""

    id: str
    name: str
    title: str
    page: str


def explain_check(entry: str, *, as_json: bool) -> None:
    """Print the page of one check. Raises a usage error that names the nearest ones if there is none."""
    loaded = load_packs()
    found = next((page for page in pages(loaded) if entry.lower() in (page.name, page.id.lower())), None)
    if found is None:
        raise typer.BadParameter(f"no check is called {entry}{_near(entry, loaded.checks())}")
    show(json.dumps(found._asdict(), indent=1) if as_json else found.page.rstrip("\n"))


def pages(loaded: Loaded) -> Iterator[Page]:
    """The page of every check, and of what the doctor finds about itself."""
    for check in loaded.checks():
        page = page_of(type(check)) or f"# {check.id} {check.name} - {check.title}\n\nthe pack has no page for it\n"
        yield Page(check.id, check.name, check.title, page)
    own = importlib.resources.files("ddp_doctor").joinpath("pack_failed.md").read_text(encoding="utf-8")
    yield Page("DDP901", "pack-failed", own.splitlines()[0].partition(" - ")[2], own)


def show(text: str) -> None:
    """Print, and take it well if the reader (`| head`) has seen enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _near(entry: str, checks: Iterable[Check]) -> str:
    names = {each.lower(): each for check in checks for each in (check.id, check.name)}
    near = difflib.get_close_matches(entry.lower(), names, 3, 0.5)
    return f"; nearest: {', '.join(names[name] for name in near)}" if near else "; `ddp-doctor checks` lists them"


def _complain(loaded: Loaded) -> None:
    for failure in loaded.failures:
        typer.echo(f"ddp-doctor: DDP901 the checks of {failure.module} did not load: {failure.reason}", err=True)
