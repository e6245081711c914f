"""Jobs that are not hung."""

import os
import threading
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready, work_for_ever
from torch.nn.parallel import DistributedDataParallel

how = os.environ["HOW"]


def train(slow=0.0):
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while True:
        model(torch.randn(64, 64)).sum().backward()
        optimizer.step()
        time.sleep(slow)


def prepare_once():
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    else:
        work_for_ever()
    if rank == 0:
        dist.barrier()


def main():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    dist.barrier()
    ready()
    if how == "many-threads":
        for _ in range(250):
            threading.Thread(target=time.sleep, args=(10000,), daemon=True).start()
    if how == "idle":
        time.sleep(10000)
    if how == "group":
        group = dist.new_group([0, 1], timeout=TIMEOUT)
        while True:
            dist.all_reduce(torch.ones(100), group=group)
    if how == "one-rank-first":
        prepare_once()
    train(0.2 if how == "slow" else 0.0)


main()
