"""Rank 0 of 2 that waits for rank 1, and listens on $BESIDE as NCCL's bootstrap does; writes down who connects there."""

import os
import socket
import threading
from pathlib import Path

import torch.distributed as dist
from common import TIMEOUT, ready

listener = socket.create_server(("0.0.0.0", int(os.environ["BESIDE"])))


def count():
    accepted = []
    while True:
        accepted.append(listener.accept())
        Path(os.environ["COUNT"]).write_text(str(len(accepted)))


threading.Thread(target=count, daemon=True, name="nccl-bootstrap").start()
ready()
dist.init_process_group("gloo", timeout=TIMEOUT)
