"""Point-to-point calls are meant to be rank-dependent."""

import torch
import torch.distributed as dist


def ring(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank % 2 == 0:
        dist.send(x, (rank + 1) % size)
        dist.recv(x, (rank - 1) % size)
    else:
        y = torch.empty_like(x)
        dist.recv(y, (rank - 1) % size)
        dist.send(x, (rank + 1) % size)


def pipeline(stage):
    x = torch.zeros(1)
    if dist.get_rank() > 0:
        dist.recv(x, dist.get_rank() - 1)
    x = stage(x)
    if dist.get_rank() < dist.get_world_size() - 1:
        dist.send(x, dist.get_rank() + 1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    ring(torch.ones(1))
    pipeline(lambda x: x + 1)
