"""Asks NVML and libcuda, without a context, which pairs of GPUs may reach each other.

Every call is named before it is made. Says {"call": ...}, then one {"pair": [i, j], ...} per ordered pair of NVML's
indexes, then {"peers": [[uuid, uuid, can], ...]} of the devices CUDA shows this environment.
"""

import ctypes

READ, WRITE = 0, 1
MOST_LINKS = 36
PCI_BYTES, PCI_BUS_ID = 68, 36  # nvmlPciInfo_t, and where its busId starts
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
    devices, buses, links = {}, {}, {}
    for index in range(count.value):
        handle, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0:
            ask("nvmlDeviceGetUUID", handle, uuid, 96)
            devices[index] = (handle, uuid.value.decode("ascii", "replace"))
            pci = ctypes.create_string_buffer(PCI_BYTES)
            if ask("nvmlDeviceGetPciInfo_v3", handle, pci) == 0:
                buses[index] = bus_id(pci)
            links[index] = far_ends(ask, handle)
    for first in devices:
        for second in devices:
            if first == second:
                continue
            found = {"pair": [first, second], "uuids": [devices[first][1], devices[second][1]]}
            for name, kind in (("read", READ), ("write", WRITE)):
                status = ctypes.c_int()
                if (
                    ask("nvmlDeviceGetP2PStatus", devices[first][0], devices[second][0], kind, ctypes.byref(status))
                    == 0
                ):
                    found[name] = STATUS.get(status.value, "status %d" % status.value)
            switches = [links[gpu] - set(buses.values()) for gpu in (first, second)]
            found["nvlink"] = buses.get(second) in links[first] or all(switches)
            level = ctypes.c_int()
            arguments = (devices[first][0], devices[second][0], ctypes.byref(level))
            if ask("nvmlDeviceGetTopologyCommonAncestor", *arguments) == 0:
                found["link"] = LINKS.get(level.value)
            say(found)


def far_ends(ask, handle):
    """The PCI addresses at the other ends of a GPU's NVLinks, found as NCCL finds them. A switch is no GPU's address."""
    ends = set()
    for link in range(MOST_LINKS):
        active, pci = ctypes.c_uint(), ctypes.create_string_buffer(PCI_BYTES)
        if ask("nvmlDeviceGetNvLinkState", handle, link, ctypes.byref(active)) != 0:
            break
        if active.value and ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, link, pci) == 0:
            ends.add(bus_id(pci))
    return ends


def bus_id(pci):
    return pci.raw[PCI_BUS_ID:].split(b"\0", 1)[0].decode("ascii", "replace").lower()


def cuda(say):
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return

    def ask(name, *arguments):
        say({"call": name})
        return getattr(library, name)(*arguments)

    count = ctypes.c_int()
    if ask("cuInit", 0) or ask("cuDeviceGetCount", ctypes.byref(count)):
        return
    uuids = []
    for device in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        ask("cuDeviceGetUuid", raw, device)
        digits = bytes(raw).hex()
        uuids.append("GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))
    peers = []
    for first in range(count.value):
        for second in range(count.value):
            can = ctypes.c_int()
            if first != second and ask("cuDeviceCanAccessPeer", ctypes.byref(can), first, second) == 0:
                peers.append([uuids[first], uuids[second], bool(can.value)])
    say({"peers": peers})
