# expect: DDP108 warning line 8
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    device = torch.device(f"cuda:{dist.get_rank()}")
    return DDP(torch.nn.Linear(2, 2).to(device))


if __name__ == "__main__":
    dist.init_process_group("nccl")
    build()
