# expect: DDP111 error line 11
import os
import random

import torch.distributed as dist


def main():
    rank = int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    os.environ["MASTER_PORT"] = str(random.randint(20000, 30000))
    dist.init_process_group("gloo", rank=rank, world_size=size)


main()
