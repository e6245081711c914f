"""Ray Train runs this loop in a thread of each worker process."""

import threading

import torch
import torch.distributed as dist


def loop():
    dist.init_process_group("gloo", init_method="env://")
    x = torch.ones(1)
    dist.all_reduce(x)


def start():
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()


if __name__ == "__main__":
    start()
