"""Whole groups take different branches, and each collective stays within its group."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo", world_size=4)
    rank = dist.get_rank()
    front = dist.new_group([0, 1])
    back = dist.new_group([2, 3])
    x = torch.ones(1)
    if rank < 2:
        dist.all_reduce(x, group=front)
    else:
        dist.all_reduce(x, group=back)
        dist.barrier(group=back)
    if rank == 0:
        print(x)
    dist.barrier()


if __name__ == "__main__":
    main()
