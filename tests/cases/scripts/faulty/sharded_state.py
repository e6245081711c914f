# expect: DDP601 error line 16
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = FSDP(torch.nn.Linear(2, 2).cuda())
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        if rank == 0:
            torch.save(model.state_dict(), "model.pt")


main()
