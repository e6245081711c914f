# expect: DDP105 error line 10
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def training_func(rank, world_size):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:23456", world_size=world_size, rank=rank)


if __name__ == "__main__":
    mp.spawn(training_func, args=(2,), nprocs=2)
