"""One file with what an examination saw, fit to be sent to somebody else: facts, and the logs they came from."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import ddp_doctor
from ddp_doctor import saved
from ddp_doctor.facts.report import Examined, ReportedRank
from ddp_doctor.model import Facts, Report
from ddp_doctor.readers.line import harmless_text
from ddp_doctor.readers.sources import Problem, Stream, files_of, streams
from ddp_doctor.redact import Redactor

SCHEMA = "ddp-doctor/bundle/1"
MANIFEST = "manifest.json"
FACTS = "facts.jsonl"
LOGS = "logs/"
MOST_OF_A_LOG = 16 << 20
MOST_OF_ALL_LOGS = 256 << 20
BEGINNING = 4 << 20
"""Bytes of a longer log that are kept from its beginning; the rest of MOST_OF_A_LOG is its end."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle holds, what was replaced in it, and what was left out. It names nothing that was replaced."""

    schema: str = SCHEMA
    version: str
    command: str
    redacted: bool
    facts: dict[str, int]
    logs: dict[str, int]
    """Name in the bundle -> bytes."""
    environment: tuple[str, ...]
    """Names of the variables whose values are inside; no other variable was looked at."""
    replaced: dict[str, int]
    left_out: tuple[str, ...]


def write_bundle(
    path: Path, facts: Facts, report: Report, sources: Sequence[str], redactor: Redactor | None
) -> Manifest:
    """Write the bundle; `sources` are the paths whose logs go along. Without a redactor everything goes as it is."""
    left_out: list[str] = []
    inside = Facts(
        [
            Examined(command=report.tool.command, version=report.tool.version, target=report.target),
            *(ReportedRank(row=row) for row in report.ranks),
            *facts,
        ],
        facts.absents,
        facts.looked_for,
    )
    tables = saved.to_tables(inside)
    logs = list(_logs(sources, left_out))
    if redactor is not None:
        # all names first: one may be known by its place in the last line only
        redactor.learn(tables)
        for name, text in logs:
            redactor.learn(name)
            for line in text.splitlines():
                redactor.learn(line)
        tables = redactor.value(tables)
        logs = [(redactor.text(name), redactor.text(text)) for name, text in logs]
        tables[1]["redacted"] = msgspec.to_builtins(redactor.redacted)
        left_out = [redactor.text(what) for what in left_out]
    names = _member_names(name for name, _ in logs)
    manifest = Manifest(
        version=ddp_doctor.__version__,
        command=report.tool.command,
        redacted=redactor is not None,
        facts=dict(Counter(str(table["kind"]) for table in tables if "kind" in table)),
        logs={name: len(text.encode()) for name, (_, text) in zip(names, logs, strict=True)},
        environment=tuple(sorted({str(table["name"]) for table in tables if table.get("kind") == "Variable"})),
        replaced=redactor.counts if redactor is not None else {},
        left_out=tuple(left_out),
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_member(MANIFEST), json.dumps(msgspec.to_builtins(manifest), indent=1) + "\n")
        archive.writestr(_member(FACTS), saved.to_lines(tables))
        for name, (_, text) in zip(names, logs, strict=True):
            archive.writestr(_member(name), text)
    return manifest


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """What a bundle says of itself, and its facts as lines; raises ValueError for any other file."""
    try:
        with zipfile.ZipFile(path) as archive:
            texts = {}
            for name in (MANIFEST, FACTS):
                with archive.open(name) as member:
                    texts[name] = member.read(MOST_OF_ALL_LOGS).decode("utf-8", "replace")
            return msgspec.json.decode(texts[MANIFEST], type=Manifest), texts[FACTS]
    except (OSError, KeyError, zipfile.BadZipFile, msgspec.DecodeError, NotImplementedError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{path} is no bundle of ddp-doctor: {harmless_text(reason)}") from None


def _member(name: str) -> zipfile.ZipInfo:
    """A member without this machine's clock and user."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _member_names(originals: Iterable[str]) -> list[str]:
    names = []
    for number, original in enumerate(originals, 1):
        last = original.replace("\\", "/").replace("!", "/").rsplit("/", 1)[-1]
        words = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in last)
        names.append(f"{LOGS}{number:04d}-{words[:80] or 'log'}")
    return names


def _logs(sources: Sequence[str], left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Name and text of each log; what is no text stays behind, since its facts are in the bundle."""
    spent = 0
    problems: list[Problem] = []
    for item in files_of([source for source in sources if source != "-"]):
        if isinstance(item, Problem):
            left_out.append(f"{item.source}: {item.reason}")
            continue
        for part in streams(item, problems):
            data, whole = _kept(part)
            if data.count(b"\0", 0, 4096) or data[:1] == b"\x80":
                left_out.append(f"{part.name}: no text; what was read of it is among the facts")
            elif spent + len(data) > MOST_OF_ALL_LOGS:
                left_out.append(f"{part.name}: {MOST_OF_ALL_LOGS >> 20} MiB of logs are inside already")
            elif data:
                spent += len(data)
                if not whole:
                    left_out.append(f"{part.name}: its middle; {MOST_OF_A_LOG >> 20} MiB of it are inside")
                text = data.decode("utf-8", "replace")
                yield part.name, "".join(f"{harmless_text(line)}\n" for line in text.splitlines())
    left_out += [f"{problem.source}: {problem.reason}" for problem in problems]


def _kept(part: Stream) -> tuple[bytes, bool]:
    """The beginning and the end of a stream, or all of it."""
    first, last = bytearray(), bytearray()
    whole = True
    for block in part.blocks:
        room = BEGINNING - len(first)
        first += block[:room] if room > 0 else b""
        last += block[max(room, 0) :]
        if len(last) > MOST_OF_A_LOG:
            whole = False
            del last[: len(last) - (MOST_OF_A_LOG - BEGINNING)]
    return bytes(first) + (b"" if whole else b"\n") + bytes(last), whole


def described(manifest: Manifest, lines: str, *, verbose: bool) -> Iterator[str]:
    """A bundle in words: what would leave the machine."""
    yield f"bundle of ddp-doctor {manifest.version}, made by {manifest.command}"
    if manifest.redacted:
        counts = ", ".join(f"{count} {what}" for what, count in manifest.replaced.items())
        yield f"replaced by stand-ins: {counts}; equal values have equal stand-ins"
    else:
        yield "nothing was replaced (--no-redact): names, addresses and paths are as they were"
    yield f"environment variables inside: {', '.join(manifest.environment) or 'none'}"
    for name, size in manifest.logs.items():
        yield f"log {harmless_text(name)}  {size} bytes"
    for what in manifest.left_out:
        yield f"left out: {harmless_text(what)}"
    facts = saved.from_lines(lines)
    for kind, count in sorted(manifest.facts.items()):
        yield f"facts {harmless_text(kind)}  {count}"
        for fact in [fact for fact in facts if saved.encoded(fact)["kind"] == kind][: None if verbose else 3]:
            yield f"  {harmless_text(_short(fact.text(), verbose))}"
    for absent in facts.absents:
        yield f"missing {harmless_text(absent.kind)}: {harmless_text(absent.reason)}"


def _short(text: str, verbose: bool) -> str:
    line: Any = " ".join(text.split())
    return str(line) if verbose or len(line) <= 120 else f"{line[:117]}..."
