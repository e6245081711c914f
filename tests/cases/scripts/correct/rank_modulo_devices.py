import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def demo():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device_id = rank % torch.cuda.device_count()
    torch.cuda.set_device(device_id)
    model = DDP(torch.nn.Linear(4, 4).to(device_id), device_ids=[device_id])
    model(torch.randn(2, 4)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    demo()
