"""Tries to bind a port as torch's store does, and finds who holds it. The port is never listened on."""

import os
import socket
import struct

LISTEN, TIME_WAIT = "0A", "06"
IDS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
)  # fmt: skip


def main(request, say, hear):
    port = request["port"]
    above = range(port + 1, min(port + 50, 65536))
    failure = try_bind(port)
    next_free = next((each for each in above if not try_bind(each)), None)
    say(dict(failure, bindable=not failure, next_free=next_free))
    sockets = [entry for entry in sockets_of_this_network() if entry["port"] == port]
    processes = owners({entry["inode"] for entry in sockets})
    for entry in sockets:
        holders = sorted(processes.get(entry["inode"], ()))
        for pid in holders or [None]:
            say(describe(entry, pid))


def try_bind(port):
    """torch binds [::] for both families, and 0.0.0.0 where that fails; the error is that of the last try."""
    error = None
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as failure:
            error = error or failure
            continue
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                sock.bind((address, port))
                return {}
            except OSError as failure:
                error = failure
    return {"errno": error.errno, "error": error.strerror or str(error)}


def sockets_of_this_network():
    found = []
    for table in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + table) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == TIME_WAIT:
                continue
            address, _, port = fields[1].partition(":")
            found.append(
                {
                    "address": decode(address),
                    "port": int(port, 16),
                    "listening": fields[3] == LISTEN,
                    "uid": int(fields[7]),
                    "inode": fields[9],
                }
            )
    return found


def decode(text):
    words = [struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    packed = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def owners(inodes):
    """Socket inode -> PIDs that hold it, of the processes that may be looked into."""
    found = {}
    wanted = {"socket:[%s]" % inode: inode for inode in inodes if inode != "0"}
    if not wanted:
        return found
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            descriptors = os.listdir("/proc/%s/fd" % pid)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink("/proc/%s/fd/%s" % (pid, descriptor))
            except OSError:
                continue
            if target in wanted:
                found.setdefault(wanted[target], set()).add(int(pid))
    return found


def stat(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    return {
        "command": head.partition(b"(")[2].decode("utf-8", "replace"),
        "state": fields[0].decode(),
        "parent": int(fields[1]),
        "session": int(fields[3]),
        "start_time": int(fields[19]),
    }


def describe(entry, pid):
    owner = {key: entry[key] for key in ("address", "listening")}
    owner["user"] = user_name(entry["uid"])
    owner["same_user"] = entry["uid"] == os.getuid()
    status = stat(pid) if pid is not None else None
    if status is None:
        return owner
    parent = stat(status["parent"]) if status["parent"] else None
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    ticks = os.sysconf("SC_CLK_TCK")
    owner.update(
        pid=pid,
        start_time=status["start_time"],
        command=status["command"],
        state=status["state"],
        parent=status["parent"],
        parent_command=parent["command"] if parent else "",
        session_leader_alive=status["session"] == 0 or os.path.exists("/proc/%d" % status["session"]),
        age_s=round(uptime - status["start_time"] / ticks, 1),
    )
    if status["state"] == "D":
        # reading its memory could block as the process itself does
        return owner
    owner["arguments"] = [part.decode("utf-8", "replace") for part in read(pid, "cmdline").split(b"\0") if part][:12]
    maps = read(pid, "maps")
    owner["nccl_loaded"] = (b"libnccl" in maps) if maps else None
    pairs = (part.partition(b"=") for part in read(pid, "environ").split(b"\0"))
    owner["job"] = {
        name.decode(): value.decode("utf-8", "replace")
        for name, _, value in pairs
        if name.decode("utf-8", "replace") in IDS
    }
    return owner


def read(pid, name):
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read(1 << 22)
    except OSError:
        return b""


def user_name(uid):
    # only the local file: a directory service may hang
    try:
        with open("/etc/passwd", "rb") as file:
            for line in file:
                fields = line.split(b":")
                if len(fields) > 2 and fields[2] == b"%d" % uid:
                    return fields[0].decode("utf-8", "replace")
    except OSError:
        pass
    return "user %d" % uid
