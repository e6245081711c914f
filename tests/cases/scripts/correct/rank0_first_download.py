"""The first rank of each node downloads, the others wait, then all read."""

import os
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def first_on_node(local_rank):
    if local_rank != 0:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def fetch():
    print("download")


def main():
    dist.init_process_group("gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    with first_on_node(local_rank):
        fetch()
    if local_rank not in (-1, 0):
        dist.barrier()
    fetch()
    if local_rank == 0:
        dist.barrier()


if __name__ == "__main__":
    main()
