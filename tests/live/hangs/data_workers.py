"""Rank 1's DataLoader workers want a lock that was held when they were forked."""

import threading
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready

lock = threading.Lock()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        with lock:
            return torch.ones(1) * index


def hold():
    with lock:
        time.sleep(100000)


def main():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    if dist.get_rank() == 1:
        threading.Thread(target=hold, daemon=True, name="lock-holder").start()
        time.sleep(0.1)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    ready()
    for _ in loader:
        dist.all_reduce(torch.ones(1))


main()
