"""Reads the ports of RDMA adapters from sysfs. The driver answers for some of the files, so this may take long."""

import os

MOST_GIDS = 256
EMPTY_IN_A_ROW = 16


def main(request, say, hear):
    place = os.path.join(request["root"], "sys/class/infiniband")
    for hca in listed(place):
        say({"look": hca})
        for port in listed(os.path.join(place, hca, "ports")):
            say({"port": describe(os.path.join(place, hca), hca, port)})


def describe(folder, hca, port):
    here = os.path.join(folder, "ports", port)
    return {
        "hca": hca,
        "port": int(port),
        "state": word(read(here, "state")),
        "physical": word(read(here, "phys_state")),
        "link_layer": read(here, "link_layer"),
        "rate": read(here, "rate"),
        "gids": gids(here),
        "netdevs": listed(os.path.join(folder, "device", "net")),
    }


def gids(here):
    found, empty = [], 0
    for index in range(MOST_GIDS):
        address = read(here, "gids", str(index))
        empty = 0 if address.strip("0:") else empty + 1
        if empty > EMPTY_IN_A_ROW:
            break
        if not empty:
            kind = read(here, "gid_attrs", "types", str(index))
            netdev = read(here, "gid_attrs", "ndevs", str(index))
            found.append({"index": index, "address": address, "type": kind, "netdev": netdev})
    return found


def word(text):
    return text.rpartition(":")[2].strip()


def read(*path):
    try:
        with open(os.path.join(*path)) as file:
            return file.read().strip()
    except OSError:
        return ""


def listed(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
