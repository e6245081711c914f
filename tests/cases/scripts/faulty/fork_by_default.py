# expect: DDP104 error line 18
import torch
import torch.distributed as dist
from torch.multiprocessing import Process


def worker(rank, size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29583", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1, device=f"cuda:{rank}"))


if __name__ == "__main__":
    warm = torch.zeros(1, device="cuda:0")
    children = [Process(target=worker, args=(rank, 2)) for rank in range(2)]
    for child in children:
        # the parent holds a CUDA context by now
        child.start()
    for child in children:
        child.join()
