"""A rank inside `with ddp_doctor.watch(...)`: HOW says what it does there."""

import ctypes
import os
import sys
import threading
import time

import torch.distributed as dist
from common import TIMEOUT
from slow_start import prepare_dataset

import ddp_doctor

how = os.environ["HOW"]
after = float(os.environ.get("AFTER", "2"))


def init(rank=None, size=None):
    store = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    if rank is None:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    else:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=TIMEOUT)


def rank_in_a_thread(rank):
    with ddp_doctor.watch(after=after):
        init(rank, 2)


if how == "threads":
    for rank in range(2):
        threading.Thread(target=rank_in_a_thread, args=(rank,), name=f"rank{rank}").start()
else:
    until = dist.is_initialized if how == "until" else None
    with ddp_doctor.watch(after=after, until=until, on_hang=os.environ.get("ON_HANG", "report")):
        print("inside", time.time(), flush=True)
        if how == "gil":
            ctypes.PyDLL(None).sleep(60)
        elif how == "until":
            init(0, 1)
            time.sleep(float(os.environ["SECONDS"]))
        elif how == "works":
            prepare_dataset(float(os.environ["SECONDS"]))
        elif how == "collective":
            init()
            if dist.get_rank() == dist.get_world_size() - 1:
                time.sleep(600)
            dist.barrier()
        else:
            init()
    print("outside", flush=True)
    sys.exit(0)
