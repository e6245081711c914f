"""Every rank makes every group in the same order and keeps its own."""

import torch
import torch.distributed as dist


def make_groups(size):
    world = dist.get_world_size()
    mine = None
    for first in range(0, world, size):
        members = list(range(first, first + size))
        group = dist.new_group(members)
        if dist.get_rank() in members:
            mine = group
    return mine


def main():
    dist.init_process_group("gloo")
    mine = make_groups(2)
    even = dist.new_group([0, 2])
    x = torch.ones(1)
    dist.all_reduce(x, group=mine)
    if dist.get_rank() in (0, 2):
        dist.all_reduce(x, group=even)
    dist.barrier()


if __name__ == "__main__":
    main()
