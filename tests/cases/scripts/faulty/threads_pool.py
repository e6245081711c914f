# expect: DDP103 error line 23
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def fit(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29573", rank=rank, world_size=WORLD)
    model = DDP(torch.nn.Linear(3, 1))
    model(torch.ones(1, 3)).sum().backward()
    dist.barrier()
    print(f"rank {rank} of {WORLD} trained", flush=True)
    dist.destroy_process_group()


def run():
    print("start")
    with ThreadPoolExecutor(max_workers=WORLD) as pool:
        list(pool.map(fit, range(WORLD)))


run()
