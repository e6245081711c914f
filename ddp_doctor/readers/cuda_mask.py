"""What CUDA makes of the text of CUDA_VISIBLE_DEVICES: it says nothing about entries that it does not like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

HIDING = ("", "-1", "nodevfiles", "none", "void")
"""Values that are set to hide every GPU (`NoDevFiles` is Slurm's for a step that was given none)."""

Fault = Literal["", "empty", "negative", "unreadable", "mixed", "duplicate", "out-of-range", "unknown"]


class MaskReading(msgspec.Struct, frozen=True, kw_only=True):
    """How far CUDA reads. `seen` are the entries that become devices, in order; `meaning` says why it ends there."""

    seen: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    hides_all: bool = False
    fault: Fault = ""
    meaning: str = ""

    @property
    def by_number(self) -> bool:
        """Whether the mask names devices by their place in CUDA's order."""
        return any(_number(entry) is not None for entry in self.entries)

    @property
    def mended(self) -> str:
        """The mask with every entry once and without those that name no device; empty where none is left."""
        good = [entry for entry in self.entries if _number(entry) is not None or entry.startswith(("GPU-", "MIG-"))]
        return ",".join(dict.fromkeys(good))


def read_mask(text: str, *, count: int | None = None, uuids: Sequence[str] = ()) -> MaskReading:
    """Read a mask. Entries that no device fits are found only where `count` (devices without the mask) and their
    `uuids`, MIG instances included, are given."""
    entries = tuple(entry.strip() for entry in text.split(","))
    if text.strip().lower() in HIDING:
        return MaskReading(entries=entries, hides_all=True, meaning="it hides every GPU")
    kind = _kind(entries[0])
    seen: list[str] = []
    named: list[str] = []

    def ends(fault: Fault, why: str) -> MaskReading:
        sees = "nothing" if not seen else "only the first" if len(seen) == 1 else f"only the first {len(seen)}"
        return MaskReading(
            entries=entries, seen=tuple(seen), fault=fault, meaning=f"{why}; CUDA stops there and sees {sees}"
        )

    for place, entry in enumerate(entries, start=1):
        where = f"entry {place} ({entry!r})"
        number = _number(entry)
        if not entry:
            if place == len(entries):
                break
            return ends("empty", f"entry {place} is empty")
        if _kind(entry) != kind:
            return ends("mixed", f"{where} is not of the same form as the first")
        if kind == "number" and number is None:
            return ends("unreadable", f"{where} is neither a number nor a GPU- or MIG- UUID")
        if number is not None and number < 0:
            return ends("negative", f"{where} is negative")
        name = entry if number is None else str(number)
        if number is not None and count is not None and number >= count:
            return ends("out-of-range", f"{where} is beyond the {count} devices here")
        # MIG-GPU-<uuid>/<instance>/<instance> is the form before R470; it cannot be matched by UUID
        if number is None and uuids and not entry.startswith("MIG-GPU-"):
            fitting = [uuid for uuid in uuids if uuid.startswith(entry)]
            if len(fitting) != 1:
                return ends("unknown", f"{where} {'fits several devices' if fitting else 'is no device of this node'}")
            name = fitting[0]
        if name in named:
            return MaskReading(
                entries=entries, fault="duplicate", meaning=f"{where} is there twice, and so CUDA sees nothing at all"
            )
        seen.append(entry)
        named.append(name)
    return MaskReading(entries=entries, seen=tuple(seen))


def _kind(entry: str) -> Literal["GPU-", "MIG-", "number"]:
    if entry.startswith("GPU-"):
        return "GPU-"
    return "MIG-" if entry.startswith("MIG-") else "number"


def _number(entry: str) -> int | None:
    """What strtol reads: the number an entry starts with."""
    found = re.match(r"[+-]?\d+", entry)
    return int(found.group()) if found else None
