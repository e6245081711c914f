"""Lists of nodes as Slurm writes them, `gpu-[01-03,7],login`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MOST_NODES = 100_000


def nodes_of_step(environ: Mapping[str, str]) -> Iterator[str]:
    """The nodes of the Slurm step, or else of the job, that this process belongs to; the first is rank 0's."""
    return expanded(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "")


def expanded(nodelist: str) -> Iterator[str]:
    """The nodes of a list as Slurm writes it, `gpu-[01-03,7],login`; what is no such list yields nothing."""
    room = MOST_NODES
    for entry in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", nodelist):
        pieces = re.split(r"\[([^\]]*)\]", entry)
        names = [pieces[0]]
        for numbers, after in zip(pieces[1::2], pieces[2::2], strict=True):
            names = [f"{name}{number}{after}" for name in names for number in _numbers(numbers, room // len(names))]
            if not names:
                break
        yield from names[:room]
        room -= len(names)
        if room <= 0:
            return


def _numbers(text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if ends is None:
            continue
        first, last = int(ends[1]), int(ends[2] or ends[1])
        found += [f"{number:0{len(ends[1])}d}" for number in range(first, min(last, first + most) + 1)]
    return found[:most]
