"""Ranks that hang in init_process_group because one is missing: `python hung_ranks.py NUMBER PORT`.

Forked after `import torch`; says `ready` once every rank is about to wait.
"""

import os
import sys
import time

import torch.distributed as dist

number, port = int(sys.argv[1]), sys.argv[2]
os.environ.update({"WORLD_SIZE": str(number + 1), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
for rank in range(number):
    if os.fork() == 0:
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
        dist.init_process_group("gloo")
time.sleep(2 + number / 16)
print("ready", flush=True)
sys.stdin.read()
