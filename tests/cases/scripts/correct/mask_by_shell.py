"""The mask is set before anything uses CUDA; importing torch uses nothing."""

import os

import torch

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

import torch.distributed as dist


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    x = torch.ones(1, device="cuda")
    dist.all_reduce(x)


if __name__ == "__main__":
    main()
