"""Rank WHO stalls after init (or before, with BEFORE=1), HOW says in what; the others wait in a collective."""

import ctypes
import fcntl
import os
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist
from common import TIMEOUT, ready

lock = threading.Lock()


def take_lock():
    with lock:
        pass


def hold_and_wait(other):
    with other:
        time.sleep(0.2)
        take_lock()


def stall(how):
    ready()
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(100000)
    elif how == "gil-thread":
        threading.Thread(target=lambda: ctypes.PyDLL(None).sleep(100000), name="gil-hog").start()
        time.sleep(0.01)
    elif how == "pipe":
        os.read(os.pipe()[0], 1)
    elif how == "flock":
        with open(os.environ["LOCK_FILE"], "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    elif how == "locks":
        other = threading.Lock()
        lock.acquire()
        threading.Thread(target=hold_and_wait, args=(other,), name="writer").start()
        time.sleep(0.4)
        other.acquire()
    elif how == "fifo":
        open(os.environ["LOCK_FILE"]).read()
    elif how in ("child", "child-read"):
        subprocess.run(["sleep", "600"], capture_output=how == "child-read")
    elif how == "sleep":
        time.sleep(10000)


def main():
    mine = int(os.environ["RANK"]) == int(os.environ.get("WHO", "1"))
    if mine and os.environ.get("BEFORE"):
        stall(os.environ["HOW"])
    ready()
    dist.init_process_group("gloo", timeout=TIMEOUT)
    if mine:
        stall(os.environ["HOW"])
    dist.all_reduce(torch.ones(1))
    time.sleep(10000)


main()
