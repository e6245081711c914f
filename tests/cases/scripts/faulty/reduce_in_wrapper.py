# expect: DDP601 error line 24
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as ar


class Meter:
    def __init__(self):
        self.value = torch.zeros(1)

    def synchronise(self):
        ar(self.value)

    def report(self):
        self.synchronise()
        return self.value.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    meter = Meter()
    meter.value += 1
    if dist.get_rank() == 0:
        print("mean", meter.report())
    dist.barrier()


main()
