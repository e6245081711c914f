"""A healthy job of gloo that communicates until the file $STOP is there, then ends as jobs do."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from common import TIMEOUT, ready


def main():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    dist.barrier()
    ready()
    store = dist.distributed_c10d._get_default_store()
    stop = torch.zeros(1)
    while not stop.item():
        stop.fill_(float(Path(os.environ["STOP"]).exists()))
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        store.add("steps", 1)
    dist.destroy_process_group()


main()
