"""Paths that people hand over to named streams of bytes: files, folders, archives, compressed files, standard input.

Nothing is written, linked files of a folder are not followed, and every archive has limits on members and bytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import select
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from ddp_doctor.readers.line import harmless_text

_unzstd: Callable[[BinaryIO], BinaryIO] | None
try:
    from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
except ImportError:
    try:
        import zstandard  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        _unzstd, _ZstdError = None, ValueError
    else:
        _ZstdError = zstandard.ZstdError

        def _unzstd(file: BinaryIO) -> BinaryIO:
            return cast("BinaryIO", zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
else:
    _ZstdError = zstd.ZstdError

    def _unzstd(file: BinaryIO) -> BinaryIO:
        return cast("BinaryIO", zstd.ZstdFile(file))


BLOCK = 256 << 10
NO_ZSTD = "packed by zstd, which this Python cannot unpack: `zstd -d` it first, or `pip install zstandard`"
OF_THE_KERNEL = (
    "the kernel's view of this machine, where other programs' text lies too; "
    "`ddp-doctor run` and `attach PID` examine this machine"
)
MOST_FILES = 100_000
MOST_MEMBERS = 10_000
MOST_UNPACKED = 8 << 30
"""Bytes that one archive or compressed file may hold, unpacked."""
MOST_PACKED = 256 << 20
"""Bytes of a packed standard input that are kept in memory."""
MOST_RATIO = 1_000
"""Unpacked bytes per packed byte beyond the first 64 MiB; logs reach about 60, a bomb a thousand and more."""

_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,
    _ZstdError,
)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be read, in words for a person."""

    source: str
    reason: str


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One file or member of an archive, as blocks of bytes. A damaged end is a Problem in `problems` after reading."""

    name: str
    blocks: Iterator[bytes]


def files_of(paths: list[str]) -> Iterator[Path | Problem]:
    """The regular files that these paths name, folders walked in order of names."""
    count = 0
    for name in paths:
        path = Path(name)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            yield Problem(source=name, reason=error.strerror or str(error))
            continue
        if stat.S_ISFIFO(mode):
            yield Problem(source=name, reason="a pipe: hand it over on standard input, as `-`")
            continue
        if _of_the_kernel(os.path.realpath(path)):
            yield Problem(source=name, reason=OF_THE_KERNEL)
            continue
        if stat.S_ISREG(mode):
            yield path
        elif not stat.S_ISDIR(mode):
            yield Problem(source=name, reason="neither a file nor a folder")
        else:
            for folder, folders, files in os.walk(path, followlinks=False):
                folders[:] = sorted(each for each in folders if not _of_the_kernel(os.path.join(folder, each)))
                for file in sorted(files):
                    inside = Path(folder) / file
                    try:
                        if not stat.S_ISREG(inside.lstat().st_mode):
                            continue
                    except OSError:
                        continue  # it went away while the folder was walked
                    count += 1
                    if count > MOST_FILES:
                        yield Problem(source=name, reason=f"more than {MOST_FILES} files; the rest was left out")
                        return
                    yield inside


def _of_the_kernel(path: str) -> bool:
    """Whether a path lies in one of the kernel's own file systems; /dev/shm holds files of people."""
    return path.startswith(("/proc/", "/sys/", "/dev/")) != path.startswith("/dev/shm/") or path in (
        "/proc",
        "/sys",
        "/dev",
    )


def streams(path: Path, problems: list[Problem]) -> Iterator[Stream]:
    """What one file holds: itself, what it packs, or each member of the archive it is."""
    name = harmless_text(str(path))
    try:
        with path.open("rb") as file:
            yield from _unpacked(file, name, _Budget(os.fstat(file.fileno()).st_size), problems)
    except _BROKEN as error:
        problems.append(Problem(source=name, reason=_words(error)))


def stream_of(file: BinaryIO, name: str, problems: list[Problem]) -> Iterator[Stream]:
    """What standard input holds; it is kept in memory if it is packed."""
    try:
        head = file.read(BLOCK)
        if _packing(head):
            whole = io.BytesIO(head + file.read(MOST_PACKED))
            yield from _unpacked(whole, name, _Budget(len(whole.getvalue())), problems)
        else:
            yield Stream(name=name, blocks=_guarded(_with(head, file), name, None, problems))
    except _BROKEN as error:
        problems.append(Problem(source=name, reason=_words(error)))


class UntilDeadline:
    """A file that ends when the time is up, as a pipe whose writer goes on for ever has to."""

    def __init__(self, file: BinaryIO, seconds: float) -> None:
        self._descriptor = file.fileno()
        self._end = time.monotonic() + seconds
        self.cut = False

    def read(self, size: int) -> bytes:
        """Up to that many bytes; fewer at the end or when the time is up."""
        pieces: list[bytes] = []
        while size > 0:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, self._end - time.monotonic()))
            self.cut = not ready
            piece = os.read(self._descriptor, min(size, BLOCK)) if ready else b""
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


class _Budget:
    """How many unpacked bytes are still allowed."""

    def __init__(self, packed: int) -> None:
        self._left = min(MOST_UNPACKED, (64 << 20) + packed * MOST_RATIO)

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError("it unpacks to far more than a log would; the rest was left out")


def _packing(head: bytes) -> str:
    magics = {
        b"\x1f\x8b": "gzip",
        b"BZh": "bzip2",
        b"\xfd7zXZ\x00": "xz",
        b"\x28\xb5\x2f\xfd": "zstd",
        b"PK\x03\x04": "zip",
        b"PK\x05\x06": "zip",
    }
    found = next((kind for magic, kind in magics.items() if head.startswith(magic)), "")
    return found or ("tar" if head[257:262] == b"ustar" else "")


def _unpacked(file: BinaryIO, name: str, budget: _Budget, problems: list[Problem], depth: int = 0) -> Iterator[Stream]:
    head = file.read(512)
    file.seek(0)
    kind = _packing(head)
    if kind == "zip":
        yield from _zip(file, name, budget, problems)
    elif kind == "tar":
        yield from _tar(file, name, budget, problems)
    elif kind and depth:
        problems.append(Problem(source=name, reason="packed more than once; unpack it first"))
    elif kind:
        opener = _opener(kind)
        if opener is None:
            problems.append(Problem(source=name, reason=NO_ZSTD))
            return
        inner = opener(file)
        start = _read_some(inner, 512, name, problems)
        if _packing(start) == "tar":
            file.seek(0)
            yield from _tar(opener(file), name, budget, problems)
        else:
            yield Stream(name=name, blocks=_guarded(_with(start, inner), name, budget, problems))
    else:
        yield Stream(name=name, blocks=_guarded(_with(b"", file), name, None, problems))


def _opener(kind: str) -> Callable[[BinaryIO], BinaryIO] | None:
    if kind == "gzip":
        return lambda file: cast("BinaryIO", gzip.GzipFile(fileobj=file))
    if kind == "bzip2":
        return lambda file: cast("BinaryIO", bz2.BZ2File(file))
    if kind == "xz":
        return lambda file: cast("BinaryIO", lzma.LZMAFile(file))
    return _unzstd


def _zip(file: BinaryIO, name: str, budget: _Budget, problems: list[Problem]) -> Iterator[Stream]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            problems.append(Problem(source=name, reason=f"more than {MOST_MEMBERS} members; the rest was left out"))
        for member in members[:MOST_MEMBERS]:
            if member.is_dir():
                continue
            inside = _inside(name, member.filename)
            try:
                with archive.open(member) as content:
                    yield from _member(cast("BinaryIO", content), inside, budget, problems)
            except (*_BROKEN, NotImplementedError) as error:
                problems.append(Problem(source=inside, reason=_words(error)))


def _tar(file: BinaryIO, name: str, budget: _Budget, problems: list[Problem]) -> Iterator[Stream]:
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for count, member in enumerate(archive):
                if count >= MOST_MEMBERS:
                    problems.append(
                        Problem(source=name, reason=f"more than {MOST_MEMBERS} members; the rest was left out")
                    )
                    return
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    inside = _inside(name, member.name)
                    yield from _member(cast("BinaryIO", content), inside, budget, problems)
    except _BROKEN as error:
        problems.append(Problem(source=name, reason=_words(error)))


def _member(content: BinaryIO, name: str, budget: _Budget, problems: list[Problem]) -> Iterator[Stream]:
    head = _read_some(content, 512, name, problems)
    kind = _packing(head)
    opener = _opener(kind) if kind in ("gzip", "bzip2", "xz", "zstd") else None
    if opener is not None:
        joined = cast("BinaryIO", io.BufferedReader(_Joined(head, content)))
        yield Stream(name=name, blocks=_guarded(_with(b"", opener(joined)), name, budget, problems))
    elif kind:
        reason = NO_ZSTD if kind == "zstd" else "an archive inside an archive; unpack it first"
        problems.append(Problem(source=name, reason=reason))
    else:
        yield Stream(name=name, blocks=_guarded(_with(head, content), name, budget, problems))


class _Joined(io.RawIOBase):
    """What was read already, then the rest."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _with(head: bytes, rest: BinaryIO) -> Iterator[bytes]:
    if head:
        yield head
    while block := rest.read(BLOCK):
        yield block


def _guarded(blocks: Iterator[bytes], name: str, budget: _Budget | None, problems: list[Problem]) -> Iterator[bytes]:
    try:
        for block in blocks:
            if budget is not None:
                budget.spend(len(block))
            yield block
    except _BROKEN as error:
        problems.append(Problem(source=name, reason=_words(error)))


def _read_some(file: BinaryIO, size: int, name: str, problems: list[Problem]) -> bytes:
    try:
        return file.read(size)
    except _BROKEN as error:
        problems.append(Problem(source=name, reason=_words(error)))
        return b""


def _inside(archive: str, member: str) -> str:
    """The name of a member for people to read; it is never opened as a path."""
    return f"{archive}!{harmless_text(member)[:200]}"


def _words(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "it ends before its end: truncated"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return harmless_text(str(text))[:200]
