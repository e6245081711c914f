"""Dumps of torch's flight recorder, pickle or JSON, to facts. A pickle is read for plain values only.

The reader refuses the operations that name or call anything (GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, extensions and
persistent ids): the standard library's unpickler asks `find_class` for all of them, and ours has no class to give.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from typing import Any, NoReturn

from ddp_doctor.facts.log import Recorded
from ddp_doctor.model import Subject
from ddp_doctor.readers.line import harmless_text

MOST_ENTRIES = 20_000
_RANK = re.compile(r"(\d+)(?:\.\w+)?$")


class _PlainUnpickler(pickle.Unpickler):
    """Containers, strings, numbers, booleans, None and bytes; whatever needs a class is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it would run {module}.{name}: refused")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to something outside: refused")


def _refuse_gaps_in_memo(data: bytes) -> None:
    """Raise ValueError where a pickle numbers a remembered value far beyond what it can hold.

    The unpickler keeps them in an array of that length: a few bytes would take all memory of the machine.
    """
    for operation, argument, _ in pickletools.genops(data):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int) and argument > len(data):
            raise ValueError("it would take more memory than its size explains: refused")


def looks_like_recording(head: bytes) -> bool:
    """Whether this is a dump of the flight recorder."""
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return True
    return head.lstrip().startswith(b"{") and b'"pg_config"' in head


def read_recording(data: bytes, source: str) -> list[Recorded]:
    """The collectives of one rank, oldest first; raises ValueError for anything else."""
    if data[:1] == b"\x80":
        try:
            _refuse_gaps_in_memo(data)
            content = _PlainUnpickler(io.BytesIO(data)).load()
        except Exception as error:  # a damaged pickle may raise nearly anything
            raise ValueError(f"not a flight recorder's dump: {error}") from None
    else:
        try:
            content = json.loads(data)
        except RecursionError:
            raise ValueError("not a flight recorder's dump: nested too deep") from None
    entries = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a flight recorder's dump: no entries")
    name = source.rsplit("/", 1)[-1].rsplit("!", 1)[-1]
    match = _RANK.search(name)
    rank = content.get("rank", int(match[1]) if match else None)
    found: list[Recorded] = []
    for entry in entries[-MOST_ENTRIES:]:
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        group = entry.get("process_group")
        sequence = entry.get("collective_seq_id", entry.get("seq_id"))
        if not isinstance(sequence, int):
            continue
        found.append(
            Recorded(
                subject=Subject(rank=rank if isinstance(rank, int) else None),
                source=f"{source} entry {len(found)}",
                group=_text(group[0] if isinstance(group, (list, tuple)) and group else entry.get("pg_id")),
                sequence=sequence,
                call=_text(entry.get("profiling_name")),
                sizes=_sizes(entry.get("input_sizes")),
                state=_text(entry.get("state")),
            )
        )
    return found


def _text(value: object) -> str:
    return harmless_text(value[:200]) if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _sizes(value: object) -> str:
    """Shapes as `[2, 8] [4]`; a value of another form, or a pickle that folds itself up endlessly, is no shape."""
    if not isinstance(value, (list, tuple)):
        return ""
    shapes = [shape for shape in value[:64] if isinstance(shape, (list, tuple)) and len(shape) <= 16]
    return " ".join(str([size for size in shape if isinstance(size, int)]) for shape in shapes)
