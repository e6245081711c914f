# expect: DDP116 error line 10
import os

import torch.distributed as dist
import torch.multiprocessing as mp


def work(number):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29500"
    os.environ["RANK"] = "0"
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group("gloo")
    dist.barrier()


if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
