# expect: DDP605 error line 9
import os

import torch.distributed as dist


def local_group():
    first = int(os.environ["GROUP_RANK"]) * int(os.environ["LOCAL_WORLD_SIZE"])
    return dist.new_group(list(range(first, first + int(os.environ["LOCAL_WORLD_SIZE"]))))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    local_group()
