"""A healthy loop that writes down when each step ended, for $STEPS/PID; HOW adds 250 threads or an uninterruptible one."""

import os
import struct
import threading
import time
from pathlib import Path

from common import TIMEOUT, ready

how = os.environ["HOW"]
if how == "ranks":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=TIMEOUT)
    gradient = torch.ones(1000)


def step():
    if how == "ranks":
        dist.all_reduce(gradient)
    time.sleep(0.004)


if how == "threads":
    for _ in range(250):
        threading.Thread(target=time.sleep, args=(10000,), daemon=True).start()
if how == "uninterruptible":
    from patient import spawn_that_never_returns

    threading.Thread(target=spawn_that_never_returns, daemon=True).start()
ready()
with Path(os.environ["STEPS"], str(os.getpid())).open("wb", buffering=0) as steps:
    while True:
        step()
        steps.write(struct.pack("d", time.monotonic()))
