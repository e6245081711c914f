"""Rank 0 saves; everybody waits behind it."""

import os

import torch
import torch.distributed as dist


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def save(model, path):
    if is_main_process():
        torch.save(model.state_dict(), path)
    if dist.is_initialized():
        dist.barrier()


def load(model, path):
    where = {"cuda:0": f"cuda:{os.environ['LOCAL_RANK']}"}
    model.load_state_dict(torch.load(path, map_location=where))


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    save(model, "a.pt")
    load(model, "a.pt")
    if not is_main_process():
        print("no log here")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
