"""Sender and receivers call the same collective, each in its own branch."""

import torch
import torch.distributed as dist


def share(value, source=0):
    if dist.get_rank() == source:
        box = [value]
        dist.broadcast_object_list(box, src=source)
    else:
        box = [None]
        dist.broadcast_object_list(box, src=source)
    return box[0]


def collect(x):
    if dist.get_rank() == 0:
        parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.gather(x, parts, dst=0)
        return parts
    dist.gather(x, dst=0)
    return None


def stop_early(patience):
    stop = False
    while True:
        if dist.get_rank() == 0 and patience():
            stop = True
        flag = torch.tensor([int(stop)])
        dist.broadcast(flag, src=0)
        if flag.item():
            break


if __name__ == "__main__":
    dist.init_process_group("gloo")
    share("x")
    collect(torch.ones(1))
    stop_early(lambda: True)
