"""A group of one for debugging, and a store in memory for a test."""

import os

import torch
import torch.distributed as dist


def debug_setup():
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    os.environ["RANK"] = "0"
    os.environ["WORLD_SIZE"] = "1"
    dist.init_process_group("gloo")


def with_store():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())


if __name__ == "__main__":
    debug_setup()
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    with_store()
