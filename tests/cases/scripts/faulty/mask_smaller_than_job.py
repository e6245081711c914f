# expect: DDP105 error line 17
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29585", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1).cuda(rank))


if __name__ == "__main__":
    # two GPUs for four ranks
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    mp.spawn(worker, args=(4,), nprocs=4)
