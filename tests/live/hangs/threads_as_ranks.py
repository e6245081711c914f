"""Hangs: two threads of one process are to be ranks 0 and 1."""

import os
import sys
import threading
from datetime import timedelta

import torch.distributed as dist

TIMEOUT = timedelta(seconds=float(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HANG_TIMEOUT", "1800")))


def training_func(rank):
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}",
        rank=rank,
        world_size=2,
        timeout=TIMEOUT,
    )


if __name__ == "__main__":
    threads = [threading.Thread(target=training_func, args=(rank,), name=f"rank{rank}") for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
