"""Reads from /sys and /proc under a root folder what stands between the given PCI devices, and what machine this is.

Says {"look": path} before a read that may wake a device, one {"path": {...}} per device and one {"machine": {...}}.
"""

import os
import re
import struct

ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
SHOWN_TO_ALL = 64
"""Bytes of configuration that the kernel shows without CAP_SYS_ADMIN."""
FIRST_EXTENDED, LAST_EXTENDED = 0x100, 0x1000
ACS_CAPABILITY, ACS_CONTROL = 0x000D, 6
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def main(request, say, hear):
    root = request["root"]

    def at(path):
        return os.path.join(root, path.lstrip("/"))

    def text(path):
        try:
            with open(at(path), "rb") as file:
                return file.read(1 << 16).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    say({"machine": machine(at, text)})
    for address in request["addresses"]:
        device = "/sys/bus/pci/devices/" + address
        bridges = ADDRESS.findall(os.path.realpath(at(device)))[:-1]
        group = group_of(at(device + "/iommu_group"))
        found = {"address": address, "bridges": [], "iommu_group": group}
        if group is not None:
            found["iommu"] = text("/sys/kernel/iommu_groups/%d/type" % group)
        for bridge in bridges:
            config = "/sys/bus/pci/devices/%s/config" % bridge
            say({"look": config})
            found["bridges"].append({"address": bridge, "acs": acs(at(config))})
        say({"path": found})


def group_of(link):
    try:
        return int(os.path.basename(os.readlink(link)))
    except (OSError, ValueError):
        return None


def acs(path):
    """The controls that are on; None where the configuration is not shown."""
    try:
        with open(path, "rb", buffering=0) as file:
            config = file.read(LAST_EXTENDED)
    except OSError:
        return None
    if len(config) <= SHOWN_TO_ALL:
        return None
    place = FIRST_EXTENDED
    # a list of capabilities: 16 bits of id, 4 of version, 12 of the next one's place, which is 0 at the end
    for _ in range((LAST_EXTENDED - FIRST_EXTENDED) // 8):
        if place < FIRST_EXTENDED or place + 8 > len(config):
            return []
        (header,) = struct.unpack_from("<I", config, place)
        if header & 0xFFFF == ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, place + ACS_CONTROL)
            return [name for bit, name in enumerate(ACS_BITS) if control >> bit & 1]
        place = header >> 20
    return []


def machine(at, text):
    flags = re.search(r"^flags\s*:(.*)$", text("/proc/cpuinfo"), re.MULTILINE)
    dmi = [text("/sys/devices/virtual/dmi/id/" + name) for name in ("sys_vendor", "product_name")]
    try:
        groups = len(os.listdir(at("/sys/kernel/iommu_groups")))
    except OSError:
        groups = 0
    return {
        "hypervisor": bool(flags and "hypervisor" in flags[1].split()) or bool(text("/sys/hypervisor/type")),
        "product": " ".join(word for word in dmi if word),
        "iommu_groups": groups,
        "iommu_options": [word for word in text("/proc/cmdline").split() if "iommu" in word or "pci=" in word],
    }
