"""Reads the file of a file:// rendezvous: which keys were written how often, and how old the file is."""

import os
import struct
import time

MOST_BYTES = 1 << 22


def main(request, say, hear):
    for path in request["paths"]:
        message = {"path": path, "exists": False}
        try:
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES)
                made = os.fstat(file.fileno())
            message.update(exists=True, age_s=round(time.time() - birth(path, made), 1), written=keys(data))
        except OSError as error:
            message["error"] = error.strerror or str(error)
        say(message)


def birth(path, made):
    """The earliest time the file system tells of."""
    return min(made.st_mtime, made.st_ctime, getattr(made, "st_birthtime", made.st_mtime))


def keys(data):
    """The file is a row of pairs, each part with its length before it."""
    found, at, parts = {}, 0, []
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        if size > len(data) - at - 8:
            break
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    for key in parts[::2]:
        name = key.decode("utf-8", "replace").lstrip("+-")
        found[name] = found.get(name, 0) + 1
    return dict(list(found.items())[:2000])
