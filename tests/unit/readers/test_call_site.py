"""The lines around a call."""

from __future__ import annotations

import struct
from pathlib import Path

from ddp_doctor.host import Host
from ddp_doctor.readers.call_site import read_call_site

SCRIPT = """\
import torch.distributed as dist

def train(model, batches):
    for batch in batches:
        model(batch).backward()
    if rank == 0:
        save(model)
    else:
        dist.barrier()

if __name__ == "__main__":
    train(None, [])
"""


def test_conditions_and_loops() -> None:
    step = read_call_site(SCRIPT, "train.py", 5)
    assert step is not None and (step.loop_lines, step.conditions) == ((4,), ())
    barrier = read_call_site(SCRIPT, "train.py", 9)
    assert barrier is not None
    assert (barrier.conditions, barrier.after_loops) == (("if not (rank == 0):",), (4,))
    assert barrier.code == "dist.barrier()"


def test_what_stands_around_a_definition_does_not_count() -> None:
    text = "if rank == 0:\n    def save():\n        dist.barrier()\n"
    site = read_call_site(text, "a.py", 3)
    assert site is not None and site.conditions == ()


def test_no_site_for_what_is_no_python() -> None:
    assert read_call_site("def (", "a.py", 1) is None
    assert read_call_site(SCRIPT, "a.py", 99) is None


def test_the_file_of_a_rendezvous(tmp_path: Path) -> None:
    pairs = [("/default_pg/0//cpu//0/0", "x"), ("+cnt", "1"), ("/default_pg/0//cpu//0/0", "y")]
    data = b"".join(struct.pack("<Q", len(part)) + part.encode() for pair in pairs for part in pair)
    (tmp_path / "store").write_bytes(data + b"\x05\0\0")
    answer = Host(5).ask("file_store", {"paths": [str(tmp_path / "store"), str(tmp_path / "none")]})
    there, absent = answer.messages
    assert there["written"] == {"/default_pg/0//cpu//0/0": 2, "cnt": 1}
    assert absent == {"path": str(tmp_path / "none"), "exists": False, "error": "No such file or directory"}


def test_one_rank_first_is_a_pair_of_calls() -> None:
    text = "if rank != 0:\n    dist.barrier()\nprepare()\nif rank == 0:\n    dist.barrier()\n"
    site, alone = read_call_site(text, "a.py", 2), read_call_site(text[:-36], "a.py", 2)
    assert site is not None and site.paired
    assert alone is not None and not alone.paired
