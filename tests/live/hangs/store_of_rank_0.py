"""Rank 0 of two, waiting in its store for rank 1: one store per backend. A line on stdin lets rank 1 join both."""

import sys
import threading
from datetime import timedelta

from torch.distributed import TCPStore

PATIENCE = timedelta(seconds=60)


def host(port: int, libuv: bool) -> None:
    TCPStore("127.0.0.1", port, 2, True, PATIENCE, wait_for_workers=True, use_libuv=libuv)
    print(f"complete {port}", flush=True)


ports = [int(port) for port in sys.argv[1:]]
hosts = [threading.Thread(target=host, args=(port, libuv)) for port, libuv in zip(ports, (True, False), strict=True)]
for thread in hosts:
    thread.start()
print("hosting", flush=True)
sys.stdin.readline()
clients = [TCPStore("127.0.0.1", port, 2, False, PATIENCE, wait_for_workers=True) for port in ports]
for thread in hosts:
    thread.join()
