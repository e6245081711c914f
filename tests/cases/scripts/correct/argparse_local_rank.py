"""The old launcher's --local_rank, with a way to run alone."""

import argparse

import torch
import torch.distributed as dist


def reduce_mean(value):
    if not dist.is_initialized():
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
    args = parser.parse_args()
    if args.local_rank == -1:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        args.n_gpu = torch.cuda.device_count()
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        dist.init_process_group(backend="nccl")
        args.n_gpu = 1
    if args.local_rank not in [-1, 0]:
        dist.barrier()
    model = torch.nn.Linear(2, 2)
    if args.local_rank == 0:
        dist.barrier()
    model.to(device)
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[args.local_rank], output_device=args.local_rank
        )
    loss = reduce_mean(model(torch.ones(1, 2).to(device)).sum().detach())
    if args.local_rank in [-1, 0]:
        print(loss.item())


if __name__ == "__main__":
    main()
