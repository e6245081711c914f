from __future__ import annotations

from ddp_doctor.model import Subject
from ddp_doctor.readers.nvidia_smi import read_query


def test_rows_become_gpus_and_errors_do_not() -> None:
    rows = (
        "NVIDIA-SMI has failed",
        "0, GPU-1, NVIDIA L4, 0:1, 23034, 22000, 1034",
        "1, GPU-2, GB10, 0:2, [N/A], [N/A], [N/A]",
    )
    text = "\n".join(rows)
    first, second = read_query(text, Subject())
    assert (first.index, first.uuid, first.memory_free) == (0, "GPU-1", 22000)
    assert second.memory_total is None
