"""Jobs that are not hung."""

import os
import threading
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready
from torch.nn.parallel import DistributedDataParallel

how = os.environ["HOW"]


def train(slow=0.0):
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while True:
        model(torch.randn(64, 64)).sum().backward()
        optimizer.step()
        time.sleep(slow)


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
    train(0.2 if how == "slow" else 0.0)


main()
