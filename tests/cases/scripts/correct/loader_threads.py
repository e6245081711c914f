"""Threads that read data; the ranks are torchrun's."""

import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def read(names, out):
    for name in names:
        out.put(name.upper())


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    batches = queue.Queue()
    readers = [threading.Thread(target=read, args=([str(i)], batches), daemon=True) for i in range(4)]
    for reader in readers:
        reader.start()
    with ThreadPoolExecutor(4) as pool:
        print(list(pool.map(len, ["a", "bb"])))
    value = torch.ones(1, device=f"cuda:{local_rank}")
    dist.all_reduce(value)
    for reader in readers:
        reader.join()


if __name__ == "__main__":
    main()
