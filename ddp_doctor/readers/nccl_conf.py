"""NCCL's conf files, read the way NCCL reads them: no trimming, no quotes, no comments but at the start of a line."""

from __future__ import annotations

from collections.abc import Iterator

Version = tuple[int, ...]


def entries(text: str, version: Version | None = None) -> Iterator[tuple[int, str, str]]:
    """Line number, name and value of each entry as NCCL of that version sets it; the newest where None.

    Before 2.22 a `#` line is an entry as well (under a name nobody reads), before 2.30 a carriage return stays.
    Names and values are cut at 1023 bytes, a line without `=` is skipped.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#"):
            continue
        if version is None or version >= (2, 30):
            line = line.removesuffix("\r")
        name, separator, value = line.partition("=")
        if separator:
            yield number, name[:1023], value[:1023]
