# expect: DDP601 error line 15
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def build():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = torch.nn.Linear(2, 2).cuda()
    is_trainer = local_rank == 0
    if is_trainer:
        model = DistributedDataParallel(model, device_ids=[local_rank])
    return model


if __name__ == "__main__":
    dist.init_process_group("nccl")
    build()
