"""Asks libcuda what it sees. No context is created: nothing here allocates on a GPU or disturbs a process that uses one.

Every call is named before it is made, so that a hang has a name. Says {"call": ...} and one {"init": ...}, {"device": ...}.
"""

import ctypes
import os

NAME_BYTES = 256
PCI_BYTES = 32


def main(request, say, hear):
    for name in request["without"]:
        os.environ.pop(name, None)
    say({"call": "dlopen libcuda.so.1"})
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        say({"missing": str(error)})
        return

    def call(name, *arguments):
        say({"call": name})
        return getattr(cuda, name)(*arguments)

    def result_name(code):
        text = ctypes.c_char_p()
        say({"call": "cuGetErrorName"})
        if cuda.cuGetErrorName(code, ctypes.byref(text)) or not text.value:
            return "CUDA error %d" % code
        return text.value.decode("utf-8", "replace")

    version = ctypes.c_int(0)
    call("cuDriverGetVersion", ctypes.byref(version))
    code = call("cuInit", 0)
    said = {"code": code, "result": "CUDA_SUCCESS" if code == 0 else result_name(code), "version": version.value}
    count = ctypes.c_int(0)
    if code == 0:
        code = call("cuDeviceGetCount", ctypes.byref(count))
        if code:
            said.update(code=code, result=result_name(code))
        said["count"] = count.value
    say({"init": said})
    for ordinal in range(count.value):
        say({"device": describe(call, cuda, ordinal)})


def describe(call, cuda, ordinal):
    device = ctypes.c_int(0)
    if call("cuDeviceGet", ctypes.byref(device), ordinal):
        return {"ordinal": ordinal}
    found = {"ordinal": ordinal}
    name = ctypes.create_string_buffer(NAME_BYTES)
    if call("cuDeviceGetName", name, NAME_BYTES, device) == 0:
        found["name"] = name.value.decode("utf-8", "replace")
    pci = ctypes.create_string_buffer(PCI_BYTES)
    if call("cuDeviceGetPCIBusId", pci, PCI_BYTES, device) == 0:
        found["pci"] = pci.value.decode("ascii", "replace")
    raw = ctypes.create_string_buffer(16)
    if call("cuDeviceGetUuid", raw, device) == 0:
        found["gpu_uuid"] = found["uuid"] = "GPU-" + dashed(raw.raw)
    # the second form is CUDA 11.4's: for a MIG instance it answers the instance, where the first may answer the GPU
    if hasattr(cuda, "cuDeviceGetUuid_v2"):
        own = ctypes.create_string_buffer(16)
        if call("cuDeviceGetUuid_v2", own, device) == 0 and own.raw != raw.raw:
            found["uuid"] = "MIG-" + dashed(own.raw)
    return found


def dashed(raw):
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
