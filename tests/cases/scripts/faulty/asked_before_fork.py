# expect: DDP104 warning line 18
import multiprocessing

import torch
import torch.distributed as dist


def worker(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29584", rank=rank, world_size=2)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    if torch.cuda.is_available():
        for rank in range(2):
            child = multiprocessing.Process(target=worker, args=(rank,))
            child.start()
