# expect: DDP103 error line 15
from multiprocessing.dummy import Pool

import torch
import torch.distributed as dist


def rank_main(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29578", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {size} trained", flush=True)


pool = Pool(2)
pool.starmap(rank_main, [(0, 2), (1, 2)])
