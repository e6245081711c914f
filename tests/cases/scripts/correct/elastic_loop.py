"""Restarts from a snapshot; torchrun's agent starts it again."""

import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.rank = int(os.environ["RANK"])
        self.model = model.to(self.local_rank)
        self.path = path
        self.done = 0
        if os.path.exists(path):
            self.restore()
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def restore(self):
        state = torch.load(self.path, map_location=f"cuda:{self.local_rank}")
        self.model.load_state_dict(state["model"])
        self.done = state["done"]

    def save(self, epoch):
        torch.save({"model": self.model.module.state_dict(), "done": epoch}, self.path)

    def train(self, epochs):
        for epoch in range(self.done, epochs):
            self.model(torch.ones(1, 2).to(self.local_rank)).sum().backward()
            if self.rank == 0 and epoch % 2 == 0:
                self.save(epoch)


@record
def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer(torch.nn.Linear(2, 2), "snapshot.pt").train(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
