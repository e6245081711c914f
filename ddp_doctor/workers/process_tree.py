"""Walks up the process tree: first the names, which never block, then command lines and environments, which can."""


def stat_of(pid):
    with open("/proc/%d/stat" % pid, "rb") as file:
        head, _, tail = file.read().rpartition(b")")
    return head.split(b"(", 1)[1].decode("utf-8", "replace"), int(tail.split()[1])


def pieces(pid, name):
    with open("/proc/%d/%s" % (pid, name), "rb") as file:
        data = file.read(1 << 20)
    return [piece.decode("utf-8", "replace") for piece in data.split(b"\0")]


def main(request, say, hear):
    pid, chain = request["pid"], []
    while pid > 0 and len(chain) < 200:
        try:
            command, parent = stat_of(pid)
        except (OSError, IndexError, ValueError):
            break
        chain.append(pid)
        say({"pid": pid, "command": command})
        pid = parent
    names = set(request["names"])
    for pid in chain:
        message = {"pid": pid, "variables": None}
        try:
            # the program and its first options tell a launcher; what follows may hold secrets
            message["arguments"] = [piece[:120] for piece in pieces(pid, "cmdline") if piece][:6]
        except OSError:
            message["arguments"] = []
        try:
            message["variables"] = sorted(
                names.intersection(piece.split("=", 1)[0] for piece in pieces(pid, "environ"))
            )
        except OSError:
            pass
        say(message)
    say({"done": True})
