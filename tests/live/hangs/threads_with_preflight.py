"""The user's own situation: two ranks as threads of one process, each of which asks before it joins."""

import os
import threading

import torch
import torch.distributed as dist

import ddp_doctor

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")


def training_func(rank):
    ddp_doctor.preflight(timeout=20, rank=rank, world_size=2)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    value = torch.ones(1)
    dist.all_reduce(value)
    print(f"rank {rank} trained {value.item():.0f}", flush=True)
    dist.destroy_process_group()


# the threads start here
threads = [threading.Thread(target=training_func, args=(rank,), name=f"rank{rank}") for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
