"""Rank 1 deadlocks on the lock of a module that it imports."""

import os

import torch.distributed as dist
from common import TIMEOUT, ready

ready()
if os.environ["RANK"] == "1":
    import ilpkg  # noqa: F401
dist.init_process_group("gloo", timeout=TIMEOUT)
