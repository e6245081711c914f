# expect: DDP103 error line 14
from threading import Thread

import torch
import torch.distributed as dist


def rank_main(rank, n):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29574", rank=rank, world_size=n)
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {n} trained", flush=True)


a = Thread(target=rank_main, args=(0, 2))
b = Thread(target=rank_main, args=(1, 2))
a.start()
b.start()
a.join()
b.join()
