"""Asks libnccl which interface it chooses: ncclGetUniqueId opens its bootstrap socket there, without a GPU or driver."""

import ctypes
import os
import socket
import struct


def main(request, say, hear):
    library = ctypes.CDLL(request["libnccl"])
    version = ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(version)) == 0:
        say({"version": version.value})
    library.ncclGetErrorString.restype = ctypes.c_char_p
    unique_id = (ctypes.c_char * 128)()
    result = library.ncclGetUniqueId(ctypes.byref(unique_id))
    # conf files are read by the library and show up in the C environment only
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    seen = {
        name: value.decode("utf-8", "replace")
        for name in ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY")
        for value in [getenv(name.encode())]
        if value is not None
    }
    if result:
        say({"result": result, "error": library.ncclGetErrorString(result).decode("utf-8", "replace"), "seen": seen})
    else:
        say({"result": 0, "address": decode(bytes(unique_id)), "seen": seen})
    # its root thread listens until the process ends
    os._exit(0)


def decode(unique_id):
    """The id is a magic number (u64) and a sockaddr."""
    (family,) = struct.unpack_from("=H", unique_id, 8)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, unique_id[12:16])
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, unique_id[16:32])
    return ""
