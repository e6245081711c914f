# expect: DDP605 error line 11
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = None
    if rank in (0, 1):
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(1), group=group)


main()
