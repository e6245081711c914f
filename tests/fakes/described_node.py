"""Becomes torch._described_node: what a CUDA build's torch.cuda answers, from libcuda, and the words of its errors."""

import ctypes
import re
import types

import torch

TOO_OLD = "The NVIDIA driver on your system is too old (found version %d)."
MISSING = "Found no NVIDIA driver on your system."
NONE = "No CUDA GPUs are available"
UNEXPECTED = "Unexpected error from cudaGetDeviceCount(): error %d"
BUILT_WITH = tuple(map(int, torch.version.cuda.split(".")))


def ask():
    """The number of devices, and the error of cudaGetDeviceCount if there is one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, MISSING
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if version.value // 1000 < BUILT_WITH[0]:
        return 0, TOO_OLD % version.value
    code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value, "" if code == 0 else NONE if code == 100 else UNEXPECTED % code


def init():
    error = ask()[1]
    if error:
        raise RuntimeError(error)


def properties(device):
    cuda = ctypes.CDLL("libcuda.so.1")
    name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(16)
    cuda.cuDeviceGetName(name, 96, device)
    cuda.cuDeviceGetUuid(uuid, device)
    dashed = re.sub("(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", uuid.raw.hex())
    return types.SimpleNamespace(name=name.value.decode(), uuid=dashed)


def nccl_version():
    nccl, version = ctypes.CDLL("libnccl.so.2"), ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    return version.value // 10000 << 32 | version.value // 100 % 100 << 16 | version.value % 100


torch.cuda.is_available = lambda: ask()[0] > 0
torch.cuda.device_count = lambda: ask()[0]
torch.cuda.init = init
torch.cuda.get_device_properties = properties
