# expect: DDP605 error line 9
import torch
import torch.distributed as dist


def pair():
    rank = dist.get_rank()
    partner = rank + 1 if rank % 2 == 0 else rank - 1
    group = dist.new_group(sorted([rank, partner]))
    dist.all_reduce(torch.ones(1), group=group)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    pair()
