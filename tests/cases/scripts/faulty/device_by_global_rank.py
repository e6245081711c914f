# expect: DDP108 warning line 11
import os

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    x = torch.ones(1, device=f"cuda:{rank}")
    dist.all_reduce(x)


if __name__ == "__main__":
    main()
