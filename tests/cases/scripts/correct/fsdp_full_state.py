import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def save(model, rank):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, "model.pt")
    dist.barrier()


def main():
    rank = int(os.environ["RANK"])
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=torch.device("cuda", device))
    model = FSDP(torch.nn.Linear(8, 8).to(device))
    model(torch.randn(2, 8).to(device)).sum().backward()
    save(model, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
