"""GPUs from the CSV that `nvidia-smi --query-gpu` prints."""

from __future__ import annotations

import csv

from ddp_doctor.facts.gpu import DriverGpu
from ddp_doctor.model import Subject

FIELDS = ("index", "uuid", "name", "pci.bus_id", "memory.total", "memory.free", "memory.used")
ARGV = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")


def read_query(text: str, subject: Subject) -> list[DriverGpu]:
    """One DriverGpu per row; rows that are no such row (nvidia-smi prints errors there) are left out."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [
        DriverGpu(
            subject=subject,
            source="nvidia-smi",
            index=int(row[0]),
            uuid=row[1],
            name=row[2],
            pci=row[3],
            memory_total=_mib(row[4]),
            memory_free=_mib(row[5]),
            memory_used=_mib(row[6]),
        )
        for row in rows
        if len(row) == len(FIELDS) and row[0].isdigit()
    ]


def _mib(cell: str) -> int | None:
    """MiB, or None for `[N/A]`."""
    return int(cell) if cell.isdigit() else None
