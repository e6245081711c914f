"""new_group in another order, or on some ranks only."""

import os

import torch
import torch.distributed as dist
from common import TIMEOUT, ready

how = os.environ["HOW"]
dist.init_process_group("gloo", timeout=TIMEOUT)
rank = dist.get_rank()


def group(ranks):
    return dist.new_group(ranks, timeout=TIMEOUT)


ready()
if how == "order":
    order = [[0, 1], [1, 2]] if rank != 2 else [[1, 2], [0, 1]]
    for ranks in order:
        group(ranks)
elif how == "some":
    if rank != 2:
        group([0, 1, 2])
elif how == "shift":
    if rank != 2:
        group([0, 1])
    dist.all_reduce(torch.ones(1), group=group([0, 1, 2]))
elif how == "not-a-member":
    pair = group([0, 1])
    if rank == 0:
        dist.all_reduce(torch.ones(1), group=pair)
dist.barrier()
