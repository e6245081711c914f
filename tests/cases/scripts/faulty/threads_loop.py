# expect: DDP103 error line 29
import os
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(world_size, rank, steps=2):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29572"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(steps):
        model(torch.full((1, 2), float(rank))).sum().backward()
    gradient = next(model.parameters()).grad.clone()
    dist.all_reduce(gradient)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} trained", flush=True)
    dist.barrier()


def main():
    world_size = 2
    threads = []
    for rank in range(world_size):
        # one thread per rank
        thread = threading.Thread(target=train, args=(world_size, rank), kwargs={"steps": 3}, name=f"rank{rank}")
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
