"""Which frame of a stack is the user's own."""

from __future__ import annotations

import pytest

from ddp_doctor.facts.process import Frame
from ddp_doctor.interpret.stack import user_frame


@pytest.mark.parametrize(
    ("library", "own"),
    [
        ("torch/distributed/distributed_c10d.py", "train.py"),
        ("/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", "/home/me/torch/train.py"),
        ("/home/me/pytorch/torch/distributed/distributed_c10d.py", "/home/me/pytorch/train.py"),
        ("/usr/lib/python3.11/threading.py", "/work/torch/jobs/train.py"),
    ],
)
def test_a_folder_called_torch_is_not_torch(library: str, own: str) -> None:
    frames = (Frame(function="init_process_group", file=library, line=1), Frame(function="main", file=own, line=12))
    assert user_frame(frames) == "train.py:12 main"
