"""Many files to facts, by content, in as many processes as there is work for."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from ddp_doctor.model import Absent, Fact
from ddp_doctor.readers.document import looks_like_document
from ddp_doctor.readers.faulthandler_dump import looks_like_faulthandler, read_faulthandler
from ddp_doctor.readers.flight_recorder import looks_like_recording, read_recording
from ddp_doctor.readers.log import LogReader
from ddp_doctor.readers.pyspy_dump import looks_like_dump, read_dump
from ddp_doctor.readers.report import looks_like_report, read_reports
from ddp_doctor.readers.sources import Problem, Stream, UntilDeadline, files_of, stream_of, streams
from ddp_doctor.readers.torchrun import looks_like_error_file, read_error_file
from ddp_doctor.saved import from_lines, looks_like_facts, looks_like_manifest

ENOUGH_FOR_TWO = 32 << 20
"""Bytes from which a second process is worth its start."""
TO_COME_BACK = 0.15
"""The share of the time, but 1.5 s where half of it is more, that is left for what was read to come back."""
SLOW = 0.1
"""Seconds after which a block counts as one that takes long."""
MOST_DUMP = 64 << 20
HEAD = 64 << 10
BEGINNING = 8 << 10
"""Bytes by which the kind of a file is known; a file of JSON may say it late."""
DOCUMENT = 24 << 10
"""Bytes by which a text is known that only speaks of jobs."""
MOST_QUOTED = 20
"""Lines of NCCL's for information, of which a log holds more and a text that quotes them fewer."""
_CONTROLS = bytes(set(range(1, 32)) - set(b"\b\t\n\f\r\x1b")) + b"\x7f"
"""Bytes that a terminal's text does not hold."""


class Read(msgspec.Struct, kw_only=True):
    """What was read: facts, what could not be read, and how many files held anything."""

    facts: list[Fact] = []
    problems: list[Problem] = []
    files: int = 0
    absents: list[Absent] = []
    looked_for: list[str] = []
    empty: list[str] = []
    """Names of what holds nothing."""


def read_paths(
    paths: Sequence[str],
    reader: LogReader,
    *,
    stdin: BinaryIO | None = None,
    seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> Read:
    """Read everything these paths name. Of what is not done after some seconds the beginning counts, and it is said."""
    read = Read()
    files: list[Path] = []
    for item in files_of([path for path in paths if path != "-"]):
        if isinstance(item, Problem):
            read.problems.append(item)
        else:
            files.append(item)
    if "-" in paths and stdin is not None:
        file = UntilDeadline(stdin, seconds)
        _add(read, read_stream(cast("BinaryIO", file), "stdin", reader))
        if file.cut:
            what = f"it did not end in {seconds:g} s; what had come until then was read"
            read.problems.append(Problem(source="stdin", reason=what))
    total = sum(map(_size, files))
    workers = 1 if total < ENOUGH_FOR_TWO else min(len(files), len(os.sched_getaffinity(0)), 8)
    stop = time.monotonic() + seconds - min(seconds / 2, max(1.5, TO_COME_BACK * seconds))
    jobs = [(number + 1, str(file), stop) for number, file in enumerate(files)]
    _add(read, _in_processes(jobs, reader, workers, seconds, progress))
    return read


def _size(file: Path) -> int:
    """The bytes of a file; none of one that went away meanwhile."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _in_processes(
    jobs: list[tuple[int, str, float]],
    reader: LogReader,
    workers: int,
    seconds: float,
    progress: Callable[[int, int], None] | None,
) -> Read:
    """The files read by children that end at the deadline: a file system may never answer."""
    read = Read()
    if not jobs:
        return read
    deadline = time.monotonic() + seconds
    context = multiprocessing.get_context("fork")
    results: list[tuple[int, Read | None]] = []
    with context.Pool(max(1, workers), initializer=_start, initargs=(reader,)) as pool:
        pending = pool.imap_unordered(_read_file, jobs)
        for done in range(len(jobs)):
            try:
                results.append(pending.next(timeout=max(0.01, deadline - time.monotonic())))
            except multiprocessing.TimeoutError:
                break
            if progress is not None:
                progress(done + 1, len(jobs))
        pool.terminate()
    came = {number for number, part in results if part is not None}
    missing = [name for number, name, _ in jobs if number not in came]
    if missing:
        reason = f"no answer in {seconds:g} s" if len(results) < len(jobs) else f"not begun within {seconds:g} s"
        left_out = f"; {len(missing)} files were left out" if len(missing) > 1 else ""
        read.problems.append(Problem(source=missing[0], reason=reason + left_out))
    for _, part in sorted(results, key=lambda result: result[0]):
        if part is not None:
            _add(read, part)
    return read


def read_stream(file: BinaryIO, name: str, reader: LogReader) -> Read:
    """What standard input or another stream holds, by content."""
    problems: list[Problem] = []
    read = _read_streams(stream_of(file, name, problems), reader, 0)
    read.problems += problems
    return read


_reader: LogReader | None = None


def _start(reader: LogReader) -> None:
    global _reader
    _reader = reader
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read_file(job: tuple[int, str, float]) -> tuple[int, Read | None]:
    """What a file holds, as far as the time goes; None where there was none left for it."""
    number, name, stop = job
    assert _reader is not None
    if time.monotonic() > stop:
        return number, None
    problems: list[Problem] = []
    parts = (Stream(name=part.name, blocks=_until(stop, part, problems)) for part in streams(Path(name), problems))
    read = _read_streams(parts, _reader, number << 32)
    read.problems += problems
    return number, read


def _until(stop: float, part: Stream, problems: list[Problem]) -> Iterator[bytes]:
    """The blocks of a stream until the time is up; smaller ones where reading them takes long."""
    size, most = 0, HEAD
    for block in part.blocks:
        place = 0
        while place < len(block):
            begun = time.monotonic()
            if begun > stop:
                reason = (
                    f"no time for more than its first {size / (1 << 20):.1f} MiB, which were read; give more --timeout"
                )
                problems.append(Problem(source=part.name, reason=reason))
                return
            piece = block[place : place + most]
            place += len(piece)
            size += len(piece)
            yield piece
            most = HEAD if time.monotonic() - begun > SLOW else len(block)


def _add(read: Read, part: Read) -> None:
    read.facts += part.facts
    read.problems += part.problems
    read.files += part.files
    read.absents += part.absents
    read.looked_for += part.looked_for
    read.empty += part.empty


def _read_streams(parts: Iterator[Stream], reader: LogReader, base: int) -> Read:
    read = Read(facts=[], problems=[])
    bundled = ""
    for place, part in enumerate(parts):
        if bundled and part.name.startswith(bundled):
            continue  # the facts of a bundle's logs stand beside them
        if _read_stream(part, reader, base + (place << 20), read) and "!" in part.name:
            bundled = f"{part.name.rpartition('!')[0]}!"
    return read


def _read_stream(part: Stream, reader: LogReader, base: int, read: Read) -> bool:
    """Read one stream by its kind; True for the facts of a bundle."""
    head = b""
    for block in part.blocks:
        head += block
        if len(head) >= HEAD:
            break
    if not head.strip():
        read.empty.append(part.name)
        return False
    read.files += 1
    shown = HEAD if head.lstrip().startswith(b"{") else BEGINNING
    text = head[:shown].decode("utf-8", "replace")
    try:
        if looks_like_facts(text):
            facts = from_lines(_whole(head, part.blocks).decode("utf-8", "replace"))
            read.facts += facts
            read.absents += facts.absents
            read.looked_for += facts.looked_for
            return True
        if looks_like_manifest(text):
            read.files -= 1
            return False
        if looks_like_report(text):
            read.facts += read_reports(_whole(head, part.blocks).decode("utf-8", "replace"), part.name)
            return False
        if looks_like_recording(head):
            read.facts += read_recording(_whole(head, part.blocks), part.name)
            return False
        if looks_like_error_file(text):
            read.facts += read_error_file(_whole(head, part.blocks).decode("utf-8", "replace"), part.name, reader, base)
            return False
        if looks_like_dump(text):
            read.facts += read_dump(_whole(head, part.blocks).decode("utf-8", "replace"), part.name)
            return False
        if looks_like_faulthandler(text):
            read.facts += read_faulthandler(_whole(head, part.blocks).decode("utf-8", "replace"), part.name)
            return False
    except (ValueError, RecursionError) as error:
        read.problems.append(Problem(source=part.name, reason=f"{error}; read as a log"))
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        whole = _whole(head, part.blocks).decode("utf-16", "replace").encode()
        read.facts += reader.read_blocks([whole], part.name, base)
    elif _is_binary(head):
        read.problems.append(Problem(source=part.name, reason="binary, of no kind that is known here"))
        read.files -= 1
    elif head.count(b" NCCL INFO ") < MOST_QUOTED and looks_like_document(head[:DOCUMENT].decode("utf-8", "replace")):
        reason = "a text about jobs, whose lines are no evidence; give what the job printed in a file of its own"
        read.problems.append(Problem(source=part.name, reason=reason))
        read.files -= 1
    else:
        read.facts += reader.read_blocks(_chain(head, part.blocks), part.name, base)
    return False


def _is_binary(head: bytes) -> bool:
    """Whether the beginning is no text in any encoding; a log may hold a run of NUL bytes after a crash."""
    start = head[:4096]
    controls = len(start) - len(start.translate(None, _CONTROLS))
    return start.count(b"\0") > len(start) // 4 or controls > len(start) // 20 or not head.strip(b"\0\r\n ")


def _chain(head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from blocks


def _whole(head: bytes, blocks: Iterator[bytes]) -> bytes:
    pieces, size = [head], len(head)
    for block in blocks:
        pieces.append(block)
        size += len(block)
        if size > MOST_DUMP:
            raise ValueError(f"larger than {MOST_DUMP >> 20} MiB")
    return b"".join(pieces)
