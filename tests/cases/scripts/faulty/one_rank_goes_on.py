# expect: DDP601 error line 14
import sys

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    total = torch.ones(1)
    rank = dist.get_rank()
    if rank != 0:
        sys.exit()
    dist.all_reduce(total)
    dist.barrier()
    print(total)


main()
