"""Two threads as ranks 0 and 1 with Gloo's lazy start: both inits return, the first collective hangs in both threads."""

import os
import threading

import torch
import torch.distributed as dist
from common import TIMEOUT, ready

os.environ["TORCH_GLOO_LAZY_INIT"] = "1"


def training_func(rank):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}", rank=rank, world_size=2, timeout=TIMEOUT
    )
    ready()
    dist.all_reduce(torch.ones(1))


threads = [threading.Thread(target=training_func, args=(rank,), name=f"rank{rank}") for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
