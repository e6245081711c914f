"""Jobs that are not hung. They go on for ever, or for SECONDS, and then say so and end with code 5."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready, work_for
from torch.nn.parallel import DistributedDataParallel

how = os.environ["HOW"]
seconds = float(os.environ.get("SECONDS", "inf"))
began = time.monotonic()


def go_on():
    """Whether the time is not over on any rank."""
    if seconds == float("inf"):
        return True
    over = torch.tensor([int(time.monotonic() - began > seconds)])
    dist.all_reduce(over, dist.ReduceOp.MAX)
    return not over.item()


def end():
    for rank in range(dist.get_world_size()):
        dist.barrier()
        if dist.get_rank() == rank:
            print(f"rank {rank} is through", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(5)


def train(slow=0.0):
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while go_on():
        model(torch.randn(64, 64)).sum().backward()
        optimizer.step()
        time.sleep(slow)
    end()


def prepare_once():
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    else:
        work_for(seconds)
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
        time.sleep(min(seconds, 10000))
    if how == "group":
        group = dist.new_group([0, 1], timeout=TIMEOUT)
        while go_on():
            dist.all_reduce(torch.ones(100), group=group)
    if how == "one-rank-first":
        prepare_once()
    train(0.2 if how == "slow" else 0.0)


main()
