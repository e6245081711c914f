"""Rank 1 works for SECONDS before init; then both ranks train for a moment and end with code 7."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def prepare_dataset(seconds):
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number = sum(index * number for index in range(20000)) % 1000003


def work(rank):
    if rank == 1:
        prepare_dataset(float(os.environ["SECONDS"]))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=120))
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {dist.get_world_size()} is through", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    mp.spawn(work, nprocs=2)
    sys.exit(7)
