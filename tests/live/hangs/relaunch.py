"""Runs its own command line again for rank 1, as Lightning's popen launcher does; what leads to training happens once."""

import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import TIMEOUT, ready

how = os.environ["HOW"]
job = Path(os.environ["READY"]).with_suffix(".job")
local_rank = int(os.environ.get("LOCAL_RANK", "0"))
requests = queue.Queue()


def fit():
    if "LOCAL_RANK" not in os.environ:
        os.environ.update(WORLD_SIZE="2", NODE_RANK="0", MASTER_ADDR="127.0.0.1", LOCAL_RANK="0")
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"LOCAL_RANK": "1"})
    ready()
    dist.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=2, timeout=TIMEOUT)
    dist.all_reduce(torch.ones(1))
    time.sleep(10000)


def take_job():
    while True:
        try:
            job.unlink()
            return
        except FileNotFoundError:
            time.sleep(0.1)


def serve():
    requests.get()
    fit()


if __name__ == "__main__":
    first = "LOCAL_RANK" not in os.environ
    if not first:
        ready()
    if how == "queue":
        if first:
            requests.put("train")
        thread = threading.Thread(target=serve, name="trainer")
        thread.start()
        thread.join()
    elif how == "message":
        if first:
            job.touch()
        take_job()
        fit()
    elif how == "input":
        if not first:
            os.read(os.pipe()[0], 1)
        fit()
    else:
        fit()
