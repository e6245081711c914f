"""A thread writes checkpoints through a gloo group of its own, made on the main thread by every rank."""

import os
import threading

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def write(state, group, step):
    dcp.save(state, checkpoint_id=f"step-{step}", process_group=group)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    checkpoint_group = dist.new_group(backend="gloo")
    model = torch.nn.Linear(4, 4).cuda()
    for step in range(100):
        model(torch.randn(2, 4).cuda()).sum().backward()
        if step % 10 == 0:
            state = {"model": {k: v.cpu() for k, v in model.state_dict().items()}}
            writer = threading.Thread(target=write, args=(state, checkpoint_group, step))
            writer.start()
            writer.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
