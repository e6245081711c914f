"""file:// rendezvous."""

import os
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready

ready()
dist.init_process_group(
    "gloo",
    init_method=f"file://{os.environ['STORE_FILE']}",
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
    timeout=TIMEOUT,
)
dist.all_reduce(torch.ones(1))
if os.environ.get("CRASH"):
    os._exit(1)
time.sleep(10000)
