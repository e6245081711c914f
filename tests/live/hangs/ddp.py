"""DistributedDataParallel on some ranks only, with other buffers, or with fewer batches."""

import os
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready, work_for_ever
from torch.nn.parallel import DistributedDataParallel

how = os.environ["HOW"]
dist.init_process_group("gloo", timeout=TIMEOUT)
rank = dist.get_rank()


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(batches):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    dist.barrier()


def main():
    module = torch.nn.Linear(4, 4)
    if how == "extra-buffer" and rank == 1:
        module.register_buffer("extra", torch.zeros(1000))
    ready()
    if how == "some" and rank == 1:
        work_for_ever()
    if how == "some-barrier" and rank == 1:
        dist.barrier()
    model = DistributedDataParallel(module)
    if how == "one-backward":
        if rank == 0:
            model(torch.randn(2, 4)).sum().backward()
        dist.barrier()
    if how == "uneven":
        train(model, 4 if rank == 0 else 3)
    else:
        train(model, 2)
    time.sleep(1000)


main()
