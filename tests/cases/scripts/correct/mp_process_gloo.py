"""Ranks as multiprocessing.Process, variables set in each child."""

import os

import torch
import torch.distributed as dist
from torch.multiprocessing import Process


def run(rank, size):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    if rank == 0:
        print(tensor)


def init(rank, size, fn, backend="gloo"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29501"
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)


if __name__ == "__main__":
    size = 2
    processes = []
    for rank in range(size):
        p = Process(target=init, args=(rank, size, run))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
