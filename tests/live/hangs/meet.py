"""init_process_group and one all_reduce; MODE says what this rank does instead."""

import os
import time

from common import TIMEOUT, ready, work_for_ever

mode = os.environ.get("MODE", "")
if mode == "slow-import":
    ready()
    time.sleep(1)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def prepare_dataset():
    ready()
    work_for_ever()


def main():
    if mode == "prepare":
        prepare_dataset()
    if mode == "sleep-first":
        ready()
        time.sleep(10000)
    if mode == "die":
        ready()
        os._exit(3)
    if mode == "stop-first":
        ready()
        os.kill(os.getpid(), 19)
    if mode == "late":
        time.sleep(float(os.environ["LATE"]))
    while mode == "try-again":
        try:
            ready()
            dist.init_process_group("gloo", timeout=TIMEOUT)
            break
        except RuntimeError as error:
            print(error, flush=True)
        time.sleep(5)
    ready()
    method = os.environ.get("INIT_METHOD") or None
    numbers = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])} if method else {}
    dist.init_process_group("gloo", init_method=method, timeout=TIMEOUT, **numbers)
    if mode == "compute":
        work_for_ever()
    if mode == "die-after":
        os._exit(1)
    dist.all_reduce(torch.ones(4))
    dist.barrier()
    time.sleep(10000)


main()
