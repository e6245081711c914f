"""One visible GPU per rank: the device is then always number 0."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29512", rank=rank, world_size=world_size)
    dist.all_reduce(torch.ones(1).cuda())


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
