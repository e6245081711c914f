"""The parent forks helpers that touch no GPU; CUDA is used in the parent alone."""

import multiprocessing
import os

import torch
import torch.distributed as dist


def tokenise(part):
    return [word.lower() for word in part]


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    x = torch.ones(1).cuda()
    with multiprocessing.Pool(2) as pool:
        print(pool.map(tokenise, [["A"], ["B"]]))
    dist.all_reduce(x)


if __name__ == "__main__":
    main()
