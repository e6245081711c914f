# expect: DDP601 error line 8
import torch
import torch.distributed as dist


def share(x):
    rank = dist.get_rank()
    return dist.all_reduce(x) if rank == 0 else x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    share(torch.ones(1))
