"""Loads packs of checks: ours by name, other people's by the entry-point group `ddp_doctor.checks`."""

from __future__ import annotations

import importlib
import importlib.resources
import pkgutil
import shlex
import sys
from collections.abc import Iterable

import msgspec

from ddp_doctor.collect import Probe
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Check, Confidence, Evidence, Fact, Finding, Fix, Headline, Separator, Severity
from ddp_doctor.signatures import Signature, Traversable, read_signatures

GROUP = "ddp_doctor.checks"
OURS = "ddp_doctor_checks"


class Pack(msgspec.Struct, frozen=True, kw_only=True):
    """What a pack module's `pack()` returns."""

    checks: tuple[type[Check], ...] = ()
    facts: tuple[type[Fact], ...] = ()
    probes: tuple[Probe, ...] = ()
    interpreters: tuple[Interpreter, ...] = ()
    signatures: tuple[Traversable, ...] = ()
    """Folders of TOML files; they are read where logs are."""
    separators: tuple[Separator, ...] = ()
    headlines: tuple[Headline, ...] = ()


class PackFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A third-party pack that could not be loaded."""

    name: str
    module: str
    reason: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """All packs as one, and the ones that failed."""

    pack: Pack
    failures: tuple[PackFailure, ...] = ()
    owners: dict[str, str] = {}
    """Finding id -> module of the pack that brought it."""

    def checks(self) -> tuple[Check, ...]:
        """An instance of every check, by id."""
        return tuple(sorted((kind() for kind in self.pack.checks), key=lambda check: check.id))

    def signatures(self) -> tuple[Signature, ...]:
        """The signatures of all packs; raises ValueError for a file that cannot be read as such."""
        return tuple(signature for folder in self.pack.signatures for signature in read_signatures(folder))


def load_pack(module: str) -> Pack:
    """The pack a module exposes; raises whatever importing or building it raises."""
    pack = importlib.import_module(module).pack()
    if not isinstance(pack, Pack):
        raise TypeError(f"{module}.pack() returned {type(pack).__name__}, not ddp_doctor.Pack")
    for check in pack.checks:
        for attribute in ("id", "name", "title"):
            if not isinstance(getattr(check, attribute, None), str):
                raise TypeError(f"{module}: check {check.__name__} has no {attribute}")
    return pack


def load_packs(*, third_party: bool = True) -> Loaded:
    """Our pack and, where asked, every installed one. A pack that fails, or reuses an id, is a failure and left out."""
    packs = [(OURS, load_pack(OURS))]
    failures = []
    owners = {check.id: OURS for check in packs[0][1].checks}
    names = {check.name for check in packs[0][1].checks}
    for name, module in _installed() if third_party else ():
        try:
            pack = load_pack(module)
            taken = _taken(pack, owners, names)
            if taken:
                raise ValueError(f"the check {taken} exists already")
        except (Exception, SystemExit) as error:  # whatever a stranger's module does at import
            failures.append(PackFailure(name=name, module=module, reason=f"{type(error).__name__}: {error}"))
            continue
        owners.update((check.id, module) for check in pack.checks)
        names.update(check.name for check in pack.checks)
        packs.append((module, pack))
    merged = Pack(
        **{field: tuple(item for _, pack in packs for item in getattr(pack, field)) for field in Pack.__struct_fields__}
    )
    return Loaded(pack=merged, failures=tuple(failures), owners=owners)


def _taken(pack: Pack, ids: Iterable[str], names: Iterable[str]) -> str:
    """The id of the first check whose id or name is given already, elsewhere or in the pack itself; or an empty string."""
    seen = {*ids, *names}
    for check in pack.checks:
        if check.id in seen or check.name in seen:
            return check.id
        seen.update((check.id, check.name))
    return ""


def _installed() -> list[tuple[str, str]]:
    from importlib.metadata import entry_points

    return sorted((entry.name, entry.value) for entry in entry_points(group=GROUP) if entry.value != OURS)


def page_of(check: type[Check]) -> str | None:
    """The page of a check: the Markdown file beside its module, under the same name; None if there is none."""
    try:
        page = pkgutil.get_data(check.__module__, f"{check.__module__.rpartition('.')[2]}.md")
    except OSError:
        return None
    return None if page is None else page.decode("utf-8")


def pack_failed(failure: PackFailure) -> Finding:
    """DDP901 for one pack."""
    return Finding(
        id="DDP901",
        name="pack-failed",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        summary=f"the checks of {failure.module} did not load: {failure.reason}",
        because="its checks were left out of this examination; all others ran",
        evidence=(Evidence(fact="Pack", source=f"entry point {failure.name}", value=failure.reason),),
        fixes=(
            Fix(
                title="see the whole traceback, then mend or remove the pack",
                commands=(f"{shlex.quote(sys.executable)} -c 'import {failure.module} as m; m.pack()'",),
                needs="nothing",
            ),
        ),
    )
