"""After init, the ranks do not do the same: HOW says how they differ."""

import os
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready, work_for_ever

how = os.environ["HOW"]
dist.init_process_group("gloo", timeout=TIMEOUT)
rank = dist.get_rank()
tensor = torch.ones(4)
odd = int(os.environ.get("ODD", "0"))
turn = "odd" if rank == odd else "even"


def save_checkpoint():
    dist.barrier()


def evaluate():
    work_for_ever()


def train():
    if how == "rank0-barrier":
        if rank == 0:
            dist.barrier()
        dist.all_reduce(tensor)
    elif how == "rank0-checkpoint":
        if dist.get_rank() == 0:
            save_checkpoint()
        dist.broadcast(tensor, 0)
    elif how == "rank0-only":
        if rank == 0:
            dist.all_reduce(tensor)
        else:
            time.sleep(10000)
    elif how == "allreduce-or-barrier":
        if turn == "odd":
            dist.barrier()
        else:
            dist.all_reduce(tensor)
    elif how == "allreduce-or-broadcast":
        if turn == "odd":
            dist.broadcast(tensor, odd)
        else:
            dist.all_reduce(tensor)
    elif how == "gather-or-allreduce":
        if turn == "odd":
            dist.all_gather([torch.ones(4) for _ in range(dist.get_world_size())], tensor)
        else:
            dist.all_reduce(tensor)
    elif how == "evaluates":
        if rank == odd:
            evaluate()
        dist.all_reduce(tensor)
    elif how == "recv-nobody-sends":
        if rank == 0:
            dist.recv(tensor, 1)
        else:
            time.sleep(10000)


ready()
train()
