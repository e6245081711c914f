"""Asks NVML and libcuda, without a context, which pairs of GPUs may reach each other.

Every call is named before it is made. Says {"call": ...}, then one {"pair": [i, j], ...} per ordered pair of NVML's
indexes, then {"peers": [[uuid, uuid, can], ...]} of the devices CUDA shows this environment.
"""

import ctypes

READ, WRITE, NVLINK = 0, 1, 2
STATUS = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by registry key",
    5: "not supported",
    6: "unknown",
}
LINKS = {0: "board", 10: "switch", 20: "switches", 30: "host-bridge", 40: "numa-node", 50: "system"}


def main(request, say, hear):
    nvml(say)
    cuda(say)


def nvml(say):
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        say({"missing": str(error)})
        return

    def ask(name, *arguments):
        """None where the library has no such function, else its code."""
        function = getattr(library, name, None)
        if function is None:
            return None
        say({"call": name})
        return function(*arguments)

    code = ask("nvmlInit_v2")
    if code:
        say({"failed": "nvmlInit_v2: %s" % code})
        return
    count = ctypes.c_uint()
    ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
    devices = {}
    for index in range(count.value):
        handle, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0:
            ask("nvmlDeviceGetUUID", handle, uuid, 96)
            devices[index] = (handle, uuid.value.decode("ascii", "replace"))
    for first in devices:
        for second in devices:
            if first == second:
                continue
            found = {"pair": [first, second], "uuids": [devices[first][1], devices[second][1]]}
            for name, kind in (("read", READ), ("write", WRITE), ("nvlink", NVLINK)):
                status = ctypes.c_int()
                if (
                    ask("nvmlDeviceGetP2PStatus", devices[first][0], devices[second][0], kind, ctypes.byref(status))
                    == 0
                ):
                    found[name] = STATUS.get(status.value, "status %d" % status.value)
            level = ctypes.c_int()
            arguments = (devices[first][0], devices[second][0], ctypes.byref(level))
            if ask("nvmlDeviceGetTopologyCommonAncestor", *arguments) == 0:
                found["link"] = LINKS.get(level.value)
            say(found)


def cuda(say):
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    say({"call": "cuInit"})
    count = ctypes.c_int()
    if (
        library.cuInit(0)
        or library.cuDeviceGetCount(ctypes.byref(count))
        or not hasattr(library, "cuDeviceCanAccessPeer")
    ):
        return
    uuids = []
    for device in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        say({"call": "cuDeviceGetUuid"})
        library.cuDeviceGetUuid(raw, device)
        digits = bytes(raw).hex()
        uuids.append("GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))
    peers = []
    for first in range(count.value):
        for second in range(count.value):
            can = ctypes.c_int()
            if first != second:
                say({"call": "cuDeviceCanAccessPeer"})
                if library.cuDeviceCanAccessPeer(ctypes.byref(can), first, second) == 0:
                    peers.append([uuids[first], uuids[second], bool(can.value)])
    say({"peers": peers})
