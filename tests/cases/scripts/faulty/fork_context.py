# expect: DDP104 error line 22
import multiprocessing as mp

import torch
import torch.distributed as dist


def worker(rank, size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29582", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1).cuda())


if __name__ == "__main__":
    size = 2
    print(torch.cuda.get_device_name(0))
    model = torch.nn.Linear(2, 2).cuda()
    context = mp.get_context("fork")
    children = []
    for rank in range(size):
        child = context.Process(target=worker, args=(rank, size))
        child.start()
        children.append(child)
    for child in children:
        child.join()
