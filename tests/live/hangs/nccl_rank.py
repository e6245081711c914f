"""A rank that calls libnccl itself, as serving engines do: the communicator beside a Gloo group, or without torch.

HOW says what this rank does: nothing special, `late` (it never comes to the communicator) or `skip` (it never comes to
the all-reduce). ID_FILE takes the place of the Gloo group. The GPU it works on is DEVICE, else its local rank.
"""

import ctypes
import os
import socket
import threading
import time

from common import TIMEOUT, ready, work_for_ever

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
how = os.environ.get("HOW", "")
COUNT, FLOAT, SUM = 1024, 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def checked(code):
    if code:
        raise SystemExit(f"error {code}")


def share_by_gloo(make):
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=TIMEOUT)
    told = [make() if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def share_by_file(make, path):
    if rank == 0:
        with open(path + ".new", "wb") as file:
            file.write(make())
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.05)
    with open(path, "rb") as file:
        return file.read()


def form_communicator(nccl):
    def make():
        made = UniqueId()
        checked(nccl.ncclGetUniqueId(ctypes.byref(made)))
        return bytes(made)

    path = os.environ.get("ID_FILE")
    told = share_by_file(make, path) if path else share_by_gloo(make)
    if how == "late":
        ready()
        work_for_ever()
    communicator = ctypes.c_void_p()
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    ready()
    checked(nccl.ncclCommInitRank(ctypes.byref(communicator), size, UniqueId.from_buffer_copy(told), rank))
    return communicator


def all_reduce(nccl, cuda, communicator, address, stream):
    checked(nccl.ncclAllReduce(address, address, ctypes.c_size_t(COUNT), FLOAT, SUM, communicator, stream))
    while cuda.cuStreamQuery(stream):
        time.sleep(0.01)


def count_visitors(path):
    """Listen as NCCL does, and write down who comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with open(path, "a") as file:
            print("listening", file=file, flush=True)
            while True:
                print(listener.accept()[1], file=file, flush=True)

    threading.Thread(target=serve, daemon=True).start()


def main():
    if "COUNT" in os.environ:
        count_visitors(os.environ["COUNT"])
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    checked(cuda.cuInit(0))
    checked(cuda.cuDeviceGet(ctypes.byref(device), int(os.environ.get("DEVICE", os.environ.get("LOCAL_RANK", "0")))))
    checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    checked(cuda.cuCtxSetCurrent(context))
    nccl = ctypes.CDLL(os.environ["LIBNCCL"])
    communicator = form_communicator(nccl)
    if how == "skip":
        work_for_ever()
    address, stream = ctypes.c_void_p(), ctypes.c_void_p()
    checked(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * COUNT)))
    checked(cuda.cuStreamCreate(ctypes.byref(stream), 0))
    while True:
        all_reduce(nccl, cuda, communicator, address, stream)
        time.sleep(5)  # where no GPU runs the kernels, libnccl crashes at some thirty that are outstanding


main()
