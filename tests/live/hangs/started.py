"""torch.multiprocessing starts the ranks; HOW says what is wrong with them."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import TIMEOUT, ready, work_for_ever

how = os.environ["HOW"]
lock = threading.Lock()


def hold():
    while True:
        with lock:
            time.sleep(0.5)


def worker(index, port, size):
    if how == "busy" and index == 1:
        ready()
        work_for_ever()
    if how == "lock":
        ready()
        with lock:
            pass
    if how == "omp":
        ready()
        square = torch.randn(2000, 2000)
        (square @ square).sum()
    if how == "stopped" and index == 1:
        ready()
        os.kill(os.getpid(), 19)
    ready()
    rank = 0 if how == "same-rank" and size > 2 else index
    if how == "same-rank":
        rank = min(index, 1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=TIMEOUT)
    dist.all_reduce(torch.ones(1))
    if how == "barrier-on-one" and index == 0:
        dist.barrier()
    time.sleep(10000)


if __name__ == "__main__":
    number = int(os.environ.get("STARTED", "2"))
    size = int(os.environ.get("SIZE", number))
    port = os.environ["MASTER_PORT"]
    for name in ("MASTER_PORT", "RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    if how == "lock":
        threading.Thread(target=hold, daemon=True, name="lock-holder").start()
        time.sleep(0.1)
    if how == "omp":
        torch.set_num_threads(2)
        square = torch.randn(2000, 2000)
        (square @ square).sum()
    method = sys.argv[1]
    mp.start_processes(worker, args=(port, size), nprocs=number, start_method=method)
