"""What people type today: `python bare_communicator.py LIBNCCL RANKS` imports torch and forms one communicator."""

import ctypes
import os
import sys
import time

import torch


class UniqueId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


def be_rank(rank: int, size: int, libnccl: str, reader: int, writer: int) -> None:
    """One rank on one device; rank 0 tells the others the id."""
    cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(libnccl)
    device, context, unique, communicator = ctypes.c_int(), ctypes.c_void_p(), UniqueId(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGet(ctypes.byref(device), rank) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    if rank == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        for _ in range(size - 1):
            os.write(writer, bytes(unique))
    else:
        unique = UniqueId.from_buffer_copy(os.read(reader, 128))
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    assert nccl.ncclCommInitRank(ctypes.byref(communicator), size, unique, rank) == 0


if __name__ == "__main__":
    ends = os.pipe()
    pids = []
    for number in range(int(sys.argv[2])):
        if (pid := os.fork()) == 0:
            be_rank(number, int(sys.argv[2]), sys.argv[1], *ends)
            os._exit(0)
        pids.append(pid)
    started = time.perf_counter()
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    print(torch.__version__, f"{time.perf_counter() - started:.2f} s")
