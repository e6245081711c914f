"""Rank 0 opens the store and lets everybody join, then stops (HOW=stop), dies (kill) or sleeps before the backend is made."""

import os
import signal
import time

import torch.distributed as dist
from common import TIMEOUT, ready
from torch.distributed.rendezvous import rendezvous

who = int(os.environ.get("WHO", "0"))
if int(os.environ["RANK"]) == who:
    next(rendezvous("env://", timeout=TIMEOUT))
    time.sleep(1)
    ready()
    how = os.environ["HOW"]
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(10000)
ready()
dist.init_process_group("gloo", timeout=TIMEOUT)
dist.barrier()
