"""Rank 1 works for SECONDS before init; then both ranks train for a moment and end with code 7.

HOW it works: `computes`, `prints` now and then while it waits for something else, or `reads` from a slow source.
"""

import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def prepare_dataset(seconds):
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number = sum(index * number for index in range(20000)) % 1000003


def wait_for_others_and_say_so(seconds):
    for _ in range(int(seconds)):
        print("waiting for the data", flush=True)
        time.sleep(1)


def download(seconds):
    source = f"i=0; while [ $i -lt {int(seconds)} ]; do echo a piece; sleep 1; i=$((i+1)); done"
    with subprocess.Popen(["sh", "-c", source], stdout=subprocess.PIPE) as process:
        for _ in process.stdout:
            pass


WAYS = {"computes": prepare_dataset, "prints": wait_for_others_and_say_so, "reads": download}


def work(rank):
    if rank == 1:
        WAYS[os.environ.get("HOW", "computes")](float(os.environ["SECONDS"]))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=120))
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {dist.get_world_size()} is through", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    mp.spawn(work, nprocs=2)
    sys.exit(7)
