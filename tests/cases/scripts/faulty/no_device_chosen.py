# expect: DDP108 warning line 8
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group(backend="nccl")
    model = DDP(torch.nn.Linear(2, 2).cuda())
    model(torch.ones(1, 2).cuda()).sum().backward()


if __name__ == "__main__":
    main()
