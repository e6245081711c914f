"""Ranks from srun; several nodes."""

import os
import subprocess

import torch
import torch.distributed as dist


def setup():
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank = int(os.environ["RANK"])
        local_rank = int(os.environ["LOCAL_RANK"])
    elif "SLURM_PROCID" in os.environ:
        rank = int(os.environ["SLURM_PROCID"])
        local_rank = rank % torch.cuda.device_count()
        os.environ["RANK"] = str(rank)
        os.environ["WORLD_SIZE"] = os.environ["SLURM_NTASKS"]
        nodes = subprocess.check_output(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]])
        os.environ["MASTER_ADDR"] = nodes.split()[0].decode()
        os.environ.setdefault("MASTER_PORT", "29500")
    else:
        raise RuntimeError("start this with srun or torchrun")
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    return rank, local_rank


def main():
    rank, local_rank = setup()
    x = torch.ones(1).cuda(local_rank)
    dist.all_reduce(x)
    if rank == 0:
        print(x.item())


if __name__ == "__main__":
    main()
