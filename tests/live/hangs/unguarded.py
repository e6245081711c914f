"""mp.spawn is guarded, but init_process_group stands at module level: each child runs it again while it imports the script."""

import os

import torch.distributed as dist
import torch.multiprocessing as mp
from common import TIMEOUT, ready

ready()
if __name__ != "__main__":
    rank = 1
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{os.environ['PORT']}", rank=rank, world_size=3, timeout=TIMEOUT
    )


def worker(index):
    dist.barrier()


if __name__ == "__main__":
    mp.spawn(worker, nprocs=2)
